"""POST a command: decode, check, lay it in the inbox, give a receipt; and take a queued one back.

202 says "kept", not "done"; what came of it arrives on the stream. The pure checks come first, then one atomic step in
the store decides the rest (PROTOCOL §3). A command refused here still gets its `ack` on the stream, by a command of the
server's own, when somebody can be there to see it.
"""

import re
import secrets
from contextlib import AsyncExitStack

import anyio
import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from protocol.codec import decode_acks, decode_event, split_array
from protocol.commands import (
    CREATES_CHAT,
    EXEMPT_FROM_QUEUE_LIMIT,
    Abort,
    CancelQueued,
    Command,
    EditQueued,
    IdeToolResult,
    InternalCommand,
    Refuse,
    RestoreMessages,
    RetryFromIndex,
    SetParams,
    ToolDecision,
    ToolDecisions,
    UpdateMessage,
    UserMessage,
    body_digest,
    decode_command,
    encode_command,
)
from protocol.content import check_text, read_content, read_context_files
from protocol.copies import read_messages
from protocol.entries import RawEntry
from protocol.errors import (
    BadRequest,
    Forbidden,
    IdempotencyMismatch,
    InvalidContent,
    NotFound,
    QueueFull,
    Refused,
    TooLarge,
    Unavailable,
)
from protocol.events import Ack
from protocol.ids import Head, check_chat_id, check_id
from protocol.principal import SYSTEM, Principal
from protocol.thread import OBJECT_MAX_BYTES, read_patch
from server.api.attachments import NotFetched, resolved
from server.api.edge import Edge, edge_of, read_body
from server.api.errors import answer, error_response
from server.store.port import Notice, Posted, PostKind, PostOutcome, PostRequest

__all__ = ["cancel_queued", "post_command"]

_log = structlog.get_logger()

ACK_WAIT_SECONDS = 2.0
"""How long the POST of `abort` and `set_params` waits for the effect before it answers 202 (PROTOCOL §3)."""

PREFER_WAIT_MAX_SECONDS = 30.0

POST_TRIES = 3
"""Own retries of one request under one nonce while the store does not answer; then 503."""


async def post_command(request: Request) -> Response:
    """`POST /v1/chats/{chat_id}/commands`."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    chat_id = check_chat_id(request.path_params["chat_id"])
    wait_seconds = _wanted_wait(request)
    body = await read_body(request, edge.body_max_bytes)
    command = decode_command(body)
    try:
        command = await resolved(command, edge.mcp)
        _check(command, principal, edge)
    except NotFetched as refusal:
        # No ack: an attachment may be there at the first try and gone when the same body is sent again.
        edge.metrics.commands_refused.labels(refusal.code).inc()
        return error_response(refusal)
    except (InvalidContent, TooLarge, BadRequest) as refusal:
        edge.metrics.commands_refused.labels(refusal.code).inc()
        await _publish_refusal(edge, chat_id, principal, command, refusal, body)
        return _refusal_answer(refusal, command)
    post = _request_of(chat_id, principal, command, body)
    waits = isinstance(command, Abort | SetParams) or wait_seconds is not None
    if not waits:
        return await _accepted(edge, post, principal, command, await _post(edge, post))
    seconds = ACK_WAIT_SECONDS if wait_seconds is None else wait_seconds
    async with AsyncExitStack() as stack:
        notices = await stack.enter_async_context(edge.store.follow(chat_id))
        posted = await _post(edge, post)
        if posted.outcome is not PostOutcome.ACCEPTED:
            return await _accepted(edge, post, principal, command, posted)
        _tell_accepted(edge, post, principal, command)
        with anyio.move_on_after(seconds):
            async for notice in notices:
                ack = await _outcome(edge, notice, command.client_request_id)
                if ack is not None:
                    return _outcome_answer(command, ack)
    return answer(202, {"status": "accepted"})


async def cancel_queued(request: Request) -> Response:
    """`DELETE /v1/chats/{chat_id}/queue/{client_request_id}`: take a waiting command back."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    chat_id = check_chat_id(request.path_params["chat_id"])
    target = check_id(request.path_params["client_request_id"], "client_request_id")
    nonce = secrets.token_hex(8)
    command = CancelQueued(client_request_id=f"cancel:{target}:{nonce}", target=target)
    post = _internal(chat_id, principal.id, command, "exempt", creates=False)
    async with AsyncExitStack() as stack:
        notices = await stack.enter_async_context(edge.store.follow(chat_id))
        posted = await _post(edge, post)
        if posted.outcome is not PostOutcome.ACCEPTED:
            return answer(404, {"status": "not_found", "detail": "no such queued command", "code": "not_found"})
        with anyio.move_on_after(ACK_WAIT_SECONDS):
            async for notice in notices:
                ack = await _outcome(edge, notice, command.client_request_id)
                if ack is None:
                    continue
                if ack.accepted:
                    return answer(200, {"status": "cancelled"})
                return answer(404, {"status": "not_found", "detail": "no such queued command", "code": "not_found"})
    return answer(202, {"status": "accepted"})


def _check(command: Command, principal: Principal, edge: Edge) -> None:
    """The checks that need no store. Raises InvalidContent, TooLarge, BadRequest, Forbidden."""
    if isinstance(command, UserMessage | RetryFromIndex | UpdateMessage):
        read_content(command.content, command.attachments)
    if isinstance(command, EditQueued) and command.content is not None:
        read_content(command.content, [])
    if isinstance(command, IdeToolResult):
        check_text(command.content, "/content")
    if isinstance(command, RestoreMessages):
        read_messages(command.messages)
    if isinstance(command, UserMessage):
        read_context_files(command.context_files)
        read_patch(command.params)
        if len(msgspec.json.encode(command.context)) > OBJECT_MAX_BYTES:
            raise TooLarge(f"context must be at most {OBJECT_MAX_BYTES} bytes of JSON", path="/context")
    if isinstance(command, SetParams):
        mode = read_patch(command.patch).get("mode")
        known = [profile.name for profile in edge.profiles.all]
        if mode is not None and mode not in known:
            raise BadRequest(f"mode: no such profile; there are {', '.join(known)}", path="/patch/mode")
    if isinstance(command, ToolDecision | ToolDecisions) and "approve" not in principal.permissions:
        raise Forbidden("this token may not approve tool calls")


def _request_of(chat_id: str, principal: Principal, command: Command, body: bytes) -> PostRequest:
    return PostRequest(
        chat_id=chat_id,
        owner=principal.id,
        principal=msgspec.json.encode(principal),
        request_id=command.client_request_id,
        digest=body_digest(body),
        nonce=secrets.token_hex(8),
        body=encode_command(command),
        kind="exempt" if isinstance(command, EXEMPT_FROM_QUEUE_LIMIT) else "normal",
        creates=isinstance(command, CREATES_CHAT),
    )


def _internal(chat_id: str, owner: str, command: InternalCommand, kind: PostKind, *, creates: bool) -> PostRequest:
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
    )


async def _post(edge: Edge, post: PostRequest) -> Posted:
    """The one atomic step, repeated with the same nonce while its answer is lost. Raises Unavailable."""
    for left in reversed(range(POST_TRIES)):
        try:
            return await edge.store.post(post)
        except Unavailable:
            if left == 0:
                raise
    raise Unavailable("the store does not answer")


def _tell_accepted(edge: Edge, post: PostRequest, principal: Principal, command: Command) -> None:
    """The command's one line at the edge."""
    edge.metrics.commands_accepted.labels(_type_of(command)).inc()
    _log.info(
        "command.accepted",
        chat_id=post.chat_id,
        client_request_id=post.request_id,
        type=_type_of(command),
        principal=principal.id,
        body_bytes=len(post.body),
    )


async def _accepted(edge: Edge, post: PostRequest, principal: Principal, command: Command, posted: Posted) -> Response:
    match posted.outcome:
        case PostOutcome.ACCEPTED:
            _tell_accepted(edge, post, principal, command)
            return answer(202, {"status": "accepted"})
        case PostOutcome.DUPLICATE:
            return answer(200, {"status": "duplicate"})
        case PostOutcome.MISMATCH:
            edge.metrics.commands_refused.labels("idempotency_mismatch").inc()
            raise IdempotencyMismatch("this client_request_id was used for another body; choose a new one")
        case PostOutcome.UNKNOWN if isinstance(command, Abort):
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
    somebody watches (DESIGN §4.9). The same refused body asks for it once."""
    meta = await edge.store.meta(chat_id)
    if meta is None:
        if await edge.store.watchers(chat_id) == 0:
            return
    elif meta.owner != principal.id or meta.deleted:
        return
    target = command.client_request_id
    refuse = Refuse(
        client_request_id=f"refused:{target}:{body_digest(body)[:16]}",
        target=target,
        code=refusal.code,
        error=refusal.message,
    )
    await edge.store.post(_internal(chat_id, principal.id, refuse, "refusal", creates=meta is None))


def _refusal_answer(refusal: Refused, command: Command) -> Response:
    if isinstance(command, SetParams):
        body = {"code": refusal.code, "error": refusal.message, "detail": refusal.message}
        return answer(400, {**body, "path": refusal.path} if refusal.path else body)
    return error_response(refusal)


async def _outcome(edge: Edge, notice: Notice, request_id: str) -> Ack | None:
    """What an entry says finally about a command, or None when it says nothing."""
    entry: RawEntry | None = notice.entry
    if notice.kind == "large":
        entry = await edge.store.read_entry(notice.chat_id, Head.parse(notice.head).entry_id)
    if entry is None:
        return None
    for word in decode_acks(entry.acks):
        if word.request_id == request_id and word.final:
            return _ack_event(entry, request_id) or Ack(request_id, word.accepted, {"queued": True})
    return None


def _ack_event(entry: RawEntry, request_id: str) -> Ack | None:
    found: Ack | None = None
    for raw in split_array(entry.events):
        if bytes(raw).startswith(b'{"type":"ack"'):
            event = decode_event(raw)
            if isinstance(event, Ack) and event.client_request_id == request_id:
                found = event
    return found


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
