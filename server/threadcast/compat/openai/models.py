"""`GET /v1/models` in OpenAI's form, and the models that requests of this door may name.

A model is `provider/name`. Profiles and agents of the operator are also models, under their own names.
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.edge import Edge, caller_of
from threadcast.api.errors import answer
from threadcast.api.operation import Answer, Operation
from threadcast.compat.openai.errors import error_of
from threadcast_protocol.wire.errors import NotFound
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["list_models", "params_of_model", "read_model"]

AGENTS = "agents/"
"""The prefix of the operator's agents among the models."""


class OpenAIModel(msgspec.Struct, frozen=True):
    """A model in OpenAI's list. `created` is always 0, because providers do not report the time."""

    id: str
    owned_by: str
    object: str = "model"
    created: int = 0


class OpenAIModels(msgspec.Struct, frozen=True):
    """All models of the server."""

    data: list[OpenAIModel]
    object: str = "list"


@Operation(
    "GET",
    "/v1/models",
    "listModels",
    "List models, profiles and agents in the format of OpenAI's API.",
    tag="doors",
    answers={200: Answer("The models.", OpenAIModels)},
    error_form=error_of,
)
async def list_models(request: Request) -> Response:
    """`GET /v1/models`."""
    edge, _ = caller_of(request)
    return answer(200, OpenAIModels(await _models(edge)))


@Operation(
    "GET",
    "/v1/models/{model:path}",
    "readModel",
    "Read one model in the format of OpenAI's API.",
    tag="doors",
    answers={200: Answer("The model.", OpenAIModel)},
    errors={404: "`model_not_found`: no such model."},
    error_form=error_of,
)
async def read_model(request: Request) -> Response:
    """`GET /v1/models/{id}`. The id may contain slashes. Raises NotFound."""
    edge, _ = caller_of(request)
    name = request.path_params["model"]
    for model in await _models(edge):
        if model.id == name:
            return answer(200, model)
    raise _unknown(name)


async def params_of_model(edge: Edge, model: str) -> JsonObject:
    """Return the run's parameters for a requested `model`: the model's name, or the profile of this name as the mode;
    {} for ''.

    Raises:
        NotFound: no provider has this model, and no profile or agent has this name.
    """
    if not model:
        return {}
    await edge.providers.listed()
    infos = edge.providers.model_infos()
    bare = model.partition("?")[0]  # scripted models have options in their names
    if bare in infos or model in infos:
        return {"model": model}
    if AGENTS + model in infos:
        return {"model": AGENTS + model}
    profile = edge.profiles.get(model)
    if profile is not None:
        return {"mode": profile.name}
    provider, slash, _ = bare.partition("/")
    is_listed = any(name.startswith(f"{provider}/") for name in infos)
    if slash and provider in edge.providers.names and (not is_listed or provider in edge.providers.scripted):
        return {"model": model}  # a provider that does not list its models may have any model
    raise _unknown(model)


async def _models(edge: Edge) -> list[OpenAIModel]:
    await edge.providers.listed()
    found = {name.removeprefix(AGENTS): name.partition("/")[0] for name in edge.providers.model_infos()}
    profiles = {profile.name: "threadcast" for profile in edge.profiles.all}
    return [OpenAIModel(name, owner) for name, owner in {**profiles, **found}.items()]


def _unknown(model: str) -> NotFound:
    return NotFound(f"the model {model[:100]!r} does not exist; GET /v1/models lists the models", path="/model")
