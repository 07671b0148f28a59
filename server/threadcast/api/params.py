"""Checks the parameters of a command, and lists the effective parameters of a chat with their sources.

The effective parameters come from the function that the agent uses, too (`chat/params.py`), so clients see the values
that are used.
"""

from collections.abc import Collection, Mapping

from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.edge import Edge, own_chat_of
from threadcast.api.errors import answer
from threadcast.api.operation import BAD_ID, NOT_FOUND, UNAVAILABLE, Answer, Operation
from threadcast.chat.params import PARAMS, SAMPLERS, effective
from threadcast.profiles.profile import Profile
from threadcast.store.load import load_folded
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.http import Params, ParamValue
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.thread import read_patch

__all__ = ["chat_params", "checked_params", "in_order", "profile_of"]


@Operation(
    "GET",
    "/v1/chats/{chat_id}/params",
    "readParams",
    "Read every parameter: its effective value, and the layer that sets the value.",
    tag="chats",
    answers={200: Answer("The parameters.", Params)},
    errors=BAD_ID | NOT_FOUND | UNAVAILABLE,
)
async def chat_params(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}/params`: returns `{"params": {key: {"value", "layer"}}}`. The layer is server, profile,
    thread or command (SET-1). Parameters of the layer `command` apply only while the command's run is open.

    Raises:
        NotFound: the caller has no such chat.
    """
    edge, meta = await own_chat_of(request)
    state, _ = await load_folded(edge.store, meta.chat_id, with_facts=True)
    defaults = edge.profiles.params_of(state)
    found = {key: effective(state, key, defaults) for key in PARAMS}
    model = found["model"]
    if not model.value:
        found["model"] = model._replace(value=edge.profiles.default_model)
    return answer(200, Params({key: ParamValue(value, layer) for key, (value, layer) in found.items()}))


async def checked_params(edge: Edge, params: object, path: str) -> JsonObject:
    """Return the parameters of a command or a patch (PROTOCOL §16). Unknown keys are left out and counted, and `mode`
    is replaced by the profile's name.

    Raises:
        BadRequest: a value is wrong, or no configured provider takes the sampling parameter. The error's path begins
        with `path`, the place of the parameters in the body.
    """
    try:
        read = read_patch(params)
    except BadRequest as wrong:
        raise BadRequest(wrong.message, path=(wrong.path or "/patch").replace("/patch", path, 1)) from None
    if isinstance(params, Mapping) and (unknown := len(params) - len(read)):
        edge.metrics.params_ignored.inc(unknown)
    wanted = [key for key in SAMPLERS if read.get(key) is not None]
    if wanted:
        await edge.providers.listed()  # the lists of some providers tell which samplers they take
        taken = edge.providers.samplers()
        for key in wanted:
            if key not in taken:
                known = ", ".join(in_order(taken)) or "none of these parameters"
                raise BadRequest(f"{key}: no configured provider takes it; they take {known}", path=f"{path}/{key}")
    mode = read.get("mode")
    if mode is None:
        return read
    return {**read, "mode": profile_of(edge, mode, f"{path}/mode").name}


def profile_of(edge: Edge, name: str, path: str) -> Profile:
    """Return the profile of this name or alias. Raises BadRequest, with the `path` at which the body or the query has
    the name."""
    profile = edge.profiles.get(name)
    if profile is None:
        names = ", ".join(each.name for each in edge.profiles.all)
        raise BadRequest(f"mode: no such profile; there are {names}", path=path)
    return profile


def in_order(samplers: Collection[str]) -> list[str]:
    """Return the names in the order of PROTOCOL §16."""
    return [name for name in SAMPLERS if name in samplers]
