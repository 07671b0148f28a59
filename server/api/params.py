"""Parameters at the edge: those that a command brings, checked, and those that hold for a chat, each with its layer.

What a settings page is shown comes from the function that the agent uses (`protocol/params.py`), so it is what runs.
"""

from collections.abc import Collection, Mapping

from starlette.requests import Request
from starlette.responses import Response

from protocol.errors import BadRequest
from protocol.ids import check_chat_id
from protocol.messages import JsonObject
from protocol.params import PARAMS, SAMPLERS, effective
from protocol.thread import read_patch
from server.api.edge import Edge, edge_of
from server.api.errors import answer
from server.store.load import load_folded

__all__ = ["chat_params", "checked_params", "in_order"]


async def chat_params(request: Request) -> Response:
    """`{"params": {key: {"value", "layer"}}}`; layer is server, profile, thread or command (SET-1). The command's layer
    counts while its run is open.

    Raises:
        NotFound: no such chat of the caller's.
    """
    edge = edge_of(request)
    chat_id = check_chat_id(request.path_params["chat_id"])
    await edge.own(chat_id, edge.principal(request.scope))
    state, _ = await load_folded(edge.store, chat_id, with_facts=True)
    defaults = edge.profiles.params_of(state)
    found = {key: effective(state, key, defaults) for key in PARAMS}
    model = found["model"]
    if not model.value:
        found["model"] = model._replace(value=edge.profiles.default_model)
    return answer(200, {"params": {key: {"value": value, "layer": layer} for key, (value, layer) in found.items()}})


async def checked_params(edge: Edge, params: object, path: str) -> JsonObject:
    """The parameters of a command or a patch (PROTOCOL §16): unknown keys are left out and counted, `mode` is the name
    of its profile.

    Raises:
        BadRequest: a key is wrong, or is a sampler that no configured provider takes; its path begins with `path`,
            where the parameters stand in the body.
    """
    try:
        read = read_patch(params)
    except BadRequest as wrong:
        raise BadRequest(wrong.message, path=(wrong.path or "/patch").replace("/patch", path, 1)) from None
    if isinstance(params, Mapping) and (unknown := len(params) - len(read)):
        edge.metrics.params_ignored.inc(unknown)
    wanted = [key for key in SAMPLERS if read.get(key) is not None]
    if wanted:
        await edge.providers.listed()  # some say in their list what they take
        taken = edge.providers.samplers()
        for key in wanted:
            if key not in taken:
                known = ", ".join(in_order(taken)) or "none of these parameters"
                raise BadRequest(f"{key}: no configured provider takes it; they take {known}", path=f"{path}/{key}")
    mode = read.get("mode")
    if mode is None:
        return read
    profile = edge.profiles.get(mode)
    if profile is None:
        names = ", ".join(each.name for each in edge.profiles.all)
        raise BadRequest(f"mode: no such profile; there are {names}", path=f"{path}/mode")
    return {**read, "mode": profile.name}


def in_order(samplers: Collection[str]) -> list[str]:
    """As PROTOCOL §16 lists them."""
    return [name for name in SAMPLERS if name in samplers]
