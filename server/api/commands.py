"""POST a command: decode, check, lay it in the inbox, give a receipt; and take a queued one back.

202 says "kept", not "done"; what came of it arrives on the stream. The pure checks come first, then one atomic step in
the store decides the rest (PROTOCOL §3). A command refused here still gets its `ack` on the stream, by a command of the
server's own, when somebody can be there to see it.
"""

import re
import secrets
from collections.abc import Callable
from typing import TypeVar, get_args

import anyio.to_thread
import msgspec
import structlog
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from structlog.contextvars import bind_contextvars

from protocol.commands import (
    CREATES_CHAT,
    EXEMPT_FROM_QUEUE_LIMIT,
    Abort,
    CancelQueued,
    Command,
    IdeToolResult,
    InternalCommand,
    Queueable,
    Refuse,
    RestoreMessages,
    SetParams,
    ToolDecision,
    ToolDecisions,
    UpdateMessage,
    UserMessage,
    body_digest,
    decode_command,
    encode_command,
)
from protocol.content import check_text, read_context_files
from protocol.errors import (
    BadRequest,
    Failed,
    Forbidden,
    IdempotencyMismatch,
    InvalidContent,
    NotFound,
    QueueFull,
    Refused,
    TooLarge,
)
from protocol.events import Ack
from protocol.ids import check_chat_id, check_id
from protocol.principal import SYSTEM, Principal
from protocol.restores import read_messages
from protocol.thread import OBJECT_MAX_BYTES
from server.api.attachments import NotFetched, resolved
from server.api.blobs import THREAD_MIN_BYTES, store_parts
from server.api.edge import Edge, edge_of, read_body
from server.api.errors import answer, error_response
from server.api.outcomes import following, outcome_within, post_until_answered
from server.api.params import checked_params
from server.store.port import Posted, PostKind, PostOutcome, PostRequest

__all__ = ["cancel_queued", "carry_out", "lay_down", "lay_down_internal", "post_command", "take_back"]

_log = structlog.get_logger()
_T = TypeVar("_T")

ACK_WAIT_SECONDS = 2.0
"""How long the POST of `abort` and `set_params` waits for the effect before it answers 202 (PROTOCOL §3)."""

PREFER_WAIT_MAX_SECONDS = 30.0


async def post_command(request: Request) -> Response:
    """`POST /v1/chats/{chat_id}/commands`."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    chat_id = check_chat_id(request.path_params["chat_id"])
    wait_seconds = _wanted_wait(request)
    bind_contextvars(chat_id=chat_id, principal=principal.id)  # the request's task, so nobody else's lines
    body = await read_body(request, edge.body_max_bytes)
    command = await _off_the_loop(decode_command, body)
    bind_contextvars(client_request_id=command.client_request_id)
    try:
        command = await resolved(command, edge.mcp)
        command = await _checked(command, principal, edge)
        command = await store_parts(edge, chat_id, principal, command, len(body))
    except NotFetched as refusal:
        # No ack: an attachment may be there at the first try and gone when the same body is sent again.
        edge.metrics.commands_refused.labels(refusal.code).inc()
        return error_response(refusal)
    except (InvalidContent, TooLarge, BadRequest) as refusal:
        edge.metrics.commands_refused.labels(refusal.code).inc()
        await _publish_refusal(edge, chat_id, principal, command, refusal, body)
        return _refusal_answer(refusal, command)
    post = _request_of(chat_id, principal, command, await _off_the_loop(body_digest, body))
    authorization = request.headers.get("authorization")
    if wait_seconds is None and isinstance(command, Abort | SetParams):
        wait_seconds = ACK_WAIT_SECONDS
    if wait_seconds is None:
        return await _accepted(
            edge, post, principal, command, await _post(edge, post, principal, command, authorization)
        )
    async with following(edge, post, principal) as notices:
        posted = await _post(edge, post, principal, command, authorization)
        accepted = await _accepted(edge, post, principal, command, posted)
        if posted.outcome is not PostOutcome.ACCEPTED:
            return accepted
        ack = None
        with edge.hub.until_closing():  # the outcome is on the stream, too; this process may not live to tell it
            ack = await outcome_within(edge.store, notices, command.client_request_id, wait_seconds)
    return accepted if ack is None else _outcome_answer(command, ack)


async def cancel_queued(request: Request) -> Response:
    """`DELETE /v1/chats/{chat_id}/queue/{client_request_id}`: take a waiting command back."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    chat_id = check_chat_id(request.path_params["chat_id"])
    target = check_id(request.path_params["client_request_id"], "client_request_id")
    bind_contextvars(chat_id=chat_id, principal=principal.id, client_request_id=target)
    nonce = secrets.token_hex(8)
    command = CancelQueued(client_request_id=f"cancel:{target}:{nonce}", target=target)
    is_cancelled = await carry_out(edge, principal, chat_id, command)
    if is_cancelled is None:
        return answer(202, {"status": "accepted"})
    return answer(200, {"status": "cancelled"}) if is_cancelled else _no_such_command()


async def carry_out(edge: Edge, principal: Principal, chat_id: str, command: InternalCommand) -> bool | None:
    """A command of our own for a chat of the caller's, and whether it had an effect; None where that was not told
    within `ACK_WAIT_SECONDS`. False for a chat that is not there. Raises Unavailable."""
    post = _internal(chat_id, principal.id, command, "exempt", creates=False)
    async with following(edge, post, principal) as notices:
        posted = await post_until_answered(edge.store, post)
        if posted.outcome is not PostOutcome.ACCEPTED:
            return False
        ack = await outcome_within(edge.store, notices, command.client_request_id, ACK_WAIT_SECONDS)
    return None if ack is None else ack.accepted


async def lay_down(
    edge: Edge,
    principal: Principal,
    chat_id: str,
    command: Command,
    authorization: str | None = None,
    *,
    new_mode: str = "",
) -> None:
    """Post a command like `post_command`, for an endpoint that makes the request id itself. `new_mode` is the profile
    of a chat that the command creates; it is set just before, in the same step, so that a refused command creates no
    chat.

    Raises:
        InvalidContent, TooLarge, BadRequest, Forbidden: the command itself.
        NotFound, QueueFull: the chat.
        QuotaSpent: the caller.
        Unavailable: the store.
    """
    command = await _checked(command, principal, edge)
    body = encode_command(command)
    command = await store_parts(edge, chat_id, principal, command, len(body))
    post = _request_of(chat_id, principal, command, body_digest(body))
    first = _mode_request(chat_id, principal, command, new_mode) if new_mode else None
    posted = await _post(edge, post, principal, command, authorization, first)
    if posted.outcome is PostOutcome.ACCEPTED:
        _tell_accepted(edge, post, command)
    elif posted.outcome is PostOutcome.FULL:
        raise QueueFull("too many commands are waiting in this chat; try again when some have run")
    elif posted.outcome is not PostOutcome.DUPLICATE and not isinstance(command, Abort):
        raise NotFound("no such chat")


async def lay_down_internal(edge: Edge, owner: str, chat_id: str, command: InternalCommand) -> None:
    """A command of our own for a chat of `owner` that is there; nothing where it is not. Raises Unavailable."""
    await post_until_answered(edge.store, _internal(chat_id, owner, command, "exempt", creates=False))


async def take_back(edge: Edge, principal: Principal, chat_id: str, request_id: str) -> None:
    """Ask that a waiting command is taken back; whether it was is told by its `ack`. Raises Unavailable."""
    cancel = CancelQueued(client_request_id=f"cancel:{request_id}:{secrets.token_hex(8)}", target=request_id)
    await lay_down_internal(edge, principal.id, chat_id, cancel)


async def _checked(command: Command, principal: Principal, edge: Edge) -> Command:
    """Return `command` after the checks that need no store, with its mode replaced by the profile's name.

    Raises:
        InvalidContent, TooLarge, BadRequest, Forbidden: what is wrong with it.
    """
    if isinstance(command, IdeToolResult):
        check_text(command.content, "/content")
    if isinstance(command, RestoreMessages):
        read_messages(command.messages)
    if isinstance(command, UpdateMessage) and command.content is None and command.attachments is None:
        raise BadRequest("an edit has content, attachments or both", path="/content")
    if isinstance(command, UserMessage):
        read_context_files(command.context_files)
        command = replace(command, params=await checked_params(edge, command.params, "/params"))
        if len(msgspec.json.encode(command.context)) > OBJECT_MAX_BYTES:
            raise TooLarge(f"context must be at most {OBJECT_MAX_BYTES} bytes of JSON", path="/context")
    if isinstance(command, SetParams):
        command = replace(command, patch=await checked_params(edge, command.patch, "/patch"))
    if isinstance(command, ToolDecision | ToolDecisions) and "approve" not in principal.permissions:
        raise Forbidden("this token may not approve tool calls")
    return command


def _mode_request(chat_id: str, principal: Principal, command: Command, mode: str) -> PostRequest:
    setting = SetParams(client_request_id=f"{command.client_request_id}-mode", patch={"mode": mode})
    return _request_of(chat_id, principal, setting, body_digest(encode_command(setting)))


async def _post(
    edge: Edge,
    post: PostRequest,
    principal: Principal,
    command: Command,
    authorization: str | None,
    first: PostRequest | None = None,
) -> Posted:
    """Write the command in one atomic step, within the caller's quota; a request over the quota keeps no value in
    memory. `first` is written before the command. Raises QuotaSpent, Unavailable."""
    async with edge.quotas.turn(principal, post.chat_id, command) as turn:
        if first is not None:
            await post_until_answered(edge.store, first)
        _hold(edge, post, command, authorization)
        posted = await post_until_answered(edge.store, post)
        if posted.outcome is PostOutcome.ACCEPTED:
            turn.keep()
        elif edge.vault is not None and posted.outcome not in (PostOutcome.DUPLICATE, PostOutcome.MISMATCH):
            edge.vault.forget(post.owner, post.chat_id, post.request_id)
        return posted


async def _off_the_loop(read: Callable[[bytes], _T], body: bytes) -> _T:
    """Return the result of `read` for a body; in a thread when the body is large, because reading 16 MB takes tens of
    milliseconds."""
    return await anyio.to_thread.run_sync(read, body) if len(body) > THREAD_MIN_BYTES else read(body)


def _request_of(chat_id: str, principal: Principal, command: Command, digest: str) -> PostRequest:
    return PostRequest(
        chat_id=chat_id,
        owner=principal.id,
        principal=msgspec.json.encode(principal),
        request_id=command.client_request_id,
        digest=digest,
        nonce=secrets.token_hex(8),
        body=encode_command(command),
        kind="exempt" if isinstance(command, EXEMPT_FROM_QUEUE_LIMIT) else "normal",
        creates=isinstance(command, CREATES_CHAT),
    )


def _internal(
    chat_id: str, owner: str, command: InternalCommand, kind: PostKind, *, creates: bool, about: str = ""
) -> PostRequest:
    body = encode_command(command)
    return PostRequest(
        chat_id=chat_id,
        owner=owner,
        principal=msgspec.json.encode(SYSTEM),
        request_id=command.client_request_id,
        digest=body_digest(body),
        nonce=secrets.token_hex(8),
        body=body,
        kind=kind,
        creates=creates,
        about=about,
    )


def _tell_accepted(edge: Edge, post: PostRequest, command: Command) -> None:
    """The command's one line at the edge; whose it is, and in which chat, is bound to every line."""
    edge.metrics.commands_accepted.labels(_type_of(command)).inc()
    _log.info(
        "command.accepted",
        type=_type_of(command),
        body_bytes=len(post.body),
    )


def _hold(edge: Edge, post: PostRequest, command: Command, authorization: str | None) -> None:
    """Keep what the tools of the command's run may need of its caller (TOOL-7); an accepted preview is a run, too."""
    if edge.vault is not None and isinstance(command, (*get_args(Queueable), ToolDecision, ToolDecisions)):
        edge.vault.hold(post.owner, post.chat_id, post.request_id, authorization)


async def _accepted(edge: Edge, post: PostRequest, principal: Principal, command: Command, posted: Posted) -> Response:
    match posted.outcome:
        case PostOutcome.ACCEPTED:
            _tell_accepted(edge, post, command)
            return answer(202, {"status": "accepted"})
        case PostOutcome.DUPLICATE:
            return answer(200, {"status": "duplicate"})
        case PostOutcome.MISMATCH:
            edge.metrics.commands_refused.labels("idempotency_mismatch").inc()
            raise IdempotencyMismatch("this client_request_id was used for another body; choose a new one")
        case PostOutcome.UNKNOWN | PostOutcome.FOREIGN | PostOutcome.GONE if isinstance(command, Abort):
            return answer(200, {"status": "aborted"})
        case PostOutcome.FULL:
            full = QueueFull("too many commands are waiting in this chat; try again when some have run")
            edge.metrics.commands_refused.labels(full.code).inc()
            await _publish_refusal(edge, post.chat_id, principal, command, full, post.body)
            return error_response(full)
    raise NotFound("no such chat")


async def _publish_refusal(
    edge: Edge, chat_id: str, principal: Principal, command: Command, refusal: Refused, body: bytes
) -> None:
    """The `ack` of a refused command, for those who watch: only for the caller's own chat, or one not yet there that
    somebody watches (DESIGN §4.9). The same refused body asks for it once. Best effort: the caller's answer is the
    refusal itself, whatever happens here."""
    try:
        meta = await edge.own_or_new(chat_id, principal)
        if meta is None and await edge.store.watchers(chat_id) == 0:
            return
        target = command.client_request_id
        refuse = Refuse(
            client_request_id=f"refused:{target}:{body_digest(body)[:16]}",
            target=target,
            code=refusal.code,
            error=refusal.message,
        )
        await edge.store.post(_internal(chat_id, principal.id, refuse, "refusal", creates=meta is None, about=target))
    except NotFound:
        return
    except Failed as trouble:
        _log.warning("refusal.not_published", code=refusal.code, error=trouble.message)


def _no_such_command() -> Response:
    return answer(404, {"status": "not_found", "detail": "no such queued command", "code": "not_found"})


def _refusal_answer(refusal: Refused, command: Command) -> Response:
    if isinstance(command, SetParams):
        body = {"code": refusal.code, "error": refusal.message, "detail": refusal.message}
        return answer(400, {**body, "path": refusal.path} if refusal.path else body)
    return error_response(refusal)


def _outcome_answer(command: Command, ack: Ack) -> Response:
    if not ack.accepted:
        return answer(200, {"status": "refused", "accepted": False, "result": ack.result})
    status = "applied"
    if isinstance(command, Abort):
        status = "aborted"
    return answer(200, {"status": status, "accepted": True, "result": ack.result})


def _wanted_wait(request: Request) -> float | None:
    """`Prefer: wait=N` in seconds (RFC 7240 §4.3), at most 30; None without it."""
    for preference in request.headers.get("prefer", "").split(","):
        name, _, value = preference.strip().partition("=")
        if name.lower() == "wait" and re.fullmatch("[0-9]{1,6}", value.strip()):
            return min(float(value), PREFER_WAIT_MAX_SECONDS)
    return None


def _type_of(command: Command) -> str:
    return str(type(command).__struct_config__.tag)
