"""The endpoint of the door of MCP, `/mcp`: streamable HTTP of revisions 2025-03-26 to 2026-07-28 (PROTOCOL §14).

Sessions are not stored: a session's id contains the negotiated values, so any process answers any request.
"""

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.edge import Edge, caller_of, read_json, release_body
from threadcast.api.errors import answer
from threadcast.api.operation import LIMITED, UNAVAILABLE, Answer, Operation
from threadcast.api.posting import lay_down
from threadcast.compat.mcp.asking import (
    asked_in,
)
from threadcast.compat.mcp.calls import OPEN_ASKS, STREAMS, Call, decide_all
from threadcast.compat.mcp.decisions import decision_of
from threadcast.compat.mcp.messages import (
    HANDSHAKE_REVISIONS,
    REVISION,
    STATUS_OF_ERROR,
    Envelope,
    McpMessage,
    RpcError,
    envelope_of,
    error_body,
    read_message,
)
from threadcast.compat.mcp.watching import UpdatesAnswer
from threadcast.store.load import load_folded
from threadcast_protocol.wire.errors import NotFound
from threadcast_protocol.wire.http import Failure
from threadcast_protocol.wire.ids import check_id
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import Principal

__all__ = ["ROUTES", "mcp_delete", "mcp_get", "mcp_post"]


def _error(failure: Failure, status: int) -> JsonObject:
    """Return the body of an error that belongs to no JSON-RPC request, such as 401 and 413."""
    data: JsonObject = {"code": failure.code}
    return error_body(None, RpcError(-32000 - min(status % 100, 19), failure.detail, data))


_PATH = "/mcp"
_SERVER_ERRORS = {400: "`bad_request`: not a message of MCP.", 413: "`too_large`."} | LIMITED | UNAVAILABLE


@Operation(
    "POST",
    _PATH,
    "mcpMessage",
    "Send a message of MCP. A request is answered by its result, or by a stream that ends with it.",
    tag="doors",
    body=McpMessage,
    answers={
        200: Answer("The answer, as JSON or as a stream.", dict, "text/event-stream"),
        202: Answer("A notification or an answer was taken.", media_type=""),
    },
    errors={404: "`not_found`: the session's id is unknown; begin with `initialize`."} | _SERVER_ERRORS,
    error_form=_error,
)
async def mcp_post(request: Request) -> Response:
    """`POST /mcp`."""
    edge, principal = caller_of(request)
    message = read_message(await read_json(request, edge.limits.body_max_bytes))
    release_body(request)
    request_id = message.id
    try:
        envelope = envelope_of(message, request.headers)
        if not message.method:
            await _take_answer(edge, principal, message, envelope)
            return Response(status_code=202)
        if request_id is UNSET or request_id is None:
            if message.method == "notifications/cancelled":
                _cancel(principal, message, envelope)
            return Response(status_code=202)
        _check_session(request, message, envelope)
        return await Call(request, edge, principal, request_id, message, envelope).answered()
    except RpcError as wrong:
        told = None if request_id is UNSET else request_id
        is_alone = request.headers.get("mcp-protocol-version") == REVISION
        status = STATUS_OF_ERROR.get(wrong.code, 200) if is_alone or told is None else 200
        return answer(status, error_body(told, wrong))


def _check_session(request: Request, message: McpMessage, envelope: Envelope) -> None:
    """Raise NotFound for a session id that this server did not make, so that the client begins again."""
    named = request.headers.get("mcp-session-id", "")
    revision, _, rest = named.partition(".")
    if named and not (revision in HANDSHAKE_REVISIONS and rest[:5] in ("form.", "none.") and len(named) <= 64):
        raise NotFound("no such session; begin with initialize")


async def _take_answer(edge: Edge, principal: Principal, message: McpMessage, envelope: Envelope) -> None:
    """Post the client's answer to a question of a run. An answer to an older question has no effect."""
    asked = asked_in(message.id)
    if asked is None:
        return
    chat_id = check_id(asked.chat_id, "id")
    await edge.own(chat_id, principal)
    state, _ = await load_folded(edge.store, chat_id, with_facts=False)
    for reason in state.runtime.pause_reasons:
        if (reason.tool_call_id, reason.input_hash or "") == (asked.tool_call_id, asked.input_hash):
            decision = decision_of(reason, message.result or {})
            if decision is not None:
                await lay_down(edge, principal, chat_id, decide_all([decision]))
                return
    for (caller, session, _), ask in OPEN_ASKS.items():
        if (caller, session) == (principal.id, envelope.session) and ask.chat_id == chat_id:
            ask.leave_open()


def _cancel(principal: Principal, message: McpMessage, envelope: Envelope) -> None:
    given = message.params.get("requestId")
    if isinstance(given, str | int) and envelope.session:
        ask = OPEN_ASKS.get((principal.id, envelope.session, given))
        if ask is not None:
            ask.cancel()


@Operation(
    "GET",
    _PATH,
    "mcpStream",
    "Open the stream of a session, on which changes of subscribed chats are told.",
    tag="doors",
    answers={200: Answer("Notifications of MCP.", dict, "text/event-stream")},
    errors=LIMITED | UNAVAILABLE,
    error_form=_error,
)
async def mcp_get(request: Request) -> Response:
    """`GET /mcp`."""
    edge, principal = caller_of(request)
    return UpdatesAnswer(edge, principal, STREAMS, session=request.headers.get("mcp-session-id", ""))


@Operation(
    "DELETE",
    _PATH,
    "mcpEnd",
    "End a session. Nothing of it is kept, so nothing happens.",
    tag="doors",
    answers={204: Answer("Done.", media_type="")},
    error_form=_error,
)
async def mcp_delete(request: Request) -> Response:
    """`DELETE /mcp`."""
    caller_of(request)
    return Response(status_code=204)


ROUTES = [mcp_post, mcp_get, mcp_delete]
