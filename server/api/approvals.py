"""What a chat is allowed for good: the tools whose calls are not asked about any more, listed and taken back (GATE-6).

A decision with `remember` is how one comes about (PROTOCOL §11); `protocol/decisions.py` notes it. Taking it back is a
command of our own in the chat's inbox, so there is still one writer. The rule: whoever owns the chat may make it ask
again; that needs no permission to approve.
"""

import secrets

from starlette.requests import Request
from starlette.responses import Response

from protocol.commands import ForgetTool
from protocol.errors import BadRequest, NotFound
from protocol.ids import NAME_MAX_CHARACTERS, check_chat_id
from server.api.chats import own_chat
from server.api.commands import carry_out
from server.api.edge import edge_of
from server.api.errors import answer
from server.store.load import load_folded

__all__ = ["forget_approval", "list_approvals"]


async def list_approvals(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}/approvals`: `{"tools": [name]}`, in the order in which they were allowed;
    `mcp__SERVER__*` is all tools of an MCP server."""
    edge = edge_of(request)
    meta = await own_chat(edge, request)
    state, _ = await load_folded(edge.store, meta.chat_id, with_facts=True)
    return answer(200, {"tools": list(state.private.allowed_tools)})


async def forget_approval(request: Request) -> Response:
    """`DELETE /v1/chats/{chat_id}/approvals/{tool_name}`: its next call is asked about again."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    chat_id = check_chat_id(request.path_params["chat_id"])
    tool_name = request.path_params["tool_name"]
    if len(tool_name) > NAME_MAX_CHARACTERS:
        raise BadRequest(f"a tool's name has at most {NAME_MAX_CHARACTERS} characters", path="/tool_name")
    await edge.own(chat_id, principal)
    command = ForgetTool(client_request_id=f"forget:{secrets.token_hex(8)}", tool_name=tool_name)
    is_over = await carry_out(edge, principal, chat_id, command)
    if is_over is None:
        return answer(202, {"status": "accepted"})
    if not is_over:
        raise NotFound("this chat remembers no approval of that tool")
    return answer(200, {"status": "deleted"})
