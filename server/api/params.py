"""GET /v1/chats/{chat_id}/params: every parameter of a chat with the value that holds and the layer it comes from.

The same function answers that the agent uses (`protocol/params.py`), so what a settings page shows is what runs.
"""

from starlette.requests import Request
from starlette.responses import Response

from protocol.ids import check_chat_id
from protocol.params import PARAMS, effective
from server.api.edge import edge_of
from server.api.errors import answer
from server.store.load import fold_loaded

__all__ = ["chat_params"]


async def chat_params(request: Request) -> Response:
    """`{"params": {key: {"value", "layer"}}}`; layer is server, profile, thread or command (SET-1). The command's layer
    counts while its run is open.

    Raises:
        NotFound: no such chat of the caller's.
    """
    edge = edge_of(request)
    chat_id = check_chat_id(request.path_params["chat_id"])
    await edge.own(chat_id, edge.principal(request.scope))
    state = fold_loaded(chat_id, await edge.store.load(chat_id), with_facts=True)
    defaults = edge.profiles.params_of(state)
    found = {key: effective(state, key, defaults) for key in PARAMS}
    model = found["model"]
    if not model.value:
        found["model"] = model._replace(value=edge.profiles.default_model)
    return answer(200, {"params": {key: {"value": value, "layer": layer} for key, (value, layer) in found.items()}})
