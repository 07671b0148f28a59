"""The endpoints that post a client's command to a chat, and that remove a waiting command from its queue.

202 means that the command is stored; the stream reports the outcome (PROTOCOL §3). When an endpoint refuses a command,
the chat's readers also receive the refusal, as an `ack` on the stream.
"""

import hashlib
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TypeVar

import structlog
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from structlog.contextvars import bind_contextvars

from threadcast.api.attachments import NotFetched
from threadcast.api.blobs import THREAD_MIN_BYTES
from threadcast.api.edge import Edge, caller_and_chat_of, read_json, release_body
from threadcast.api.errors import answer, error_response
from threadcast.api.operation import BAD_ID, LIMITED, NOT_FOUND, UNAVAILABLE, Answer, Operation, Parameter
from threadcast.api.outcomes import following, outcome_within
from threadcast.api.posting import (
    ACK_WAIT_SECONDS,
    cancel_of,
    carry_out,
    client_post,
    post,
    post_of,
    prepared,
    status_of,
)
from threadcast.base.large_reads import in_large_read
from threadcast.chat.internal_commands import Refuse
from threadcast.credentials import FORWARD_HEADER
from threadcast.store.ports import PostOutcome
from threadcast_protocol.wire.commands import Abort, Command, SetParams, body_digest, decode_command
from threadcast_protocol.wire.content import MESSAGE_TEXT_MAX_BYTES
from threadcast_protocol.wire.errors import (
    BadRequest,
    Failed,
    IdempotencyMismatch,
    IdTaken,
    InvalidContent,
    NotFound,
    QueueFull,
    Refused,
    StorageFull,
    TooLarge,
)
from threadcast_protocol.wire.http import Failure, Receipt, Status
from threadcast_protocol.wire.ids import check_id
from threadcast_protocol.wire.principal import Principal

__all__ = ["cancel_queued", "post_command"]

_log = structlog.get_logger()
_T = TypeVar("_T")

PREFER_WAIT_MAX_SECONDS = 30.0


@Operation(
    "POST",
    "/v1/chats/{chat_id}/commands",
    "postCommand",
    "Post a command to a chat. Its effects are sent on the stream.",
    tag="commands",
    parameters=[
        Parameter(
            "Prefer",
            str,
            "`wait=N`: answer when the command has taken effect, or after N seconds, at most 30.",
            "header",
        ),
        Parameter(
            FORWARD_HEADER,
            str,
            "The credential that tools with `forward_auth` send to their services. Never a token of this server.",
            "header",
        ),
    ],
    body=Command,
    answers={
        200: Answer(
            "The command has taken effect (`aborted`, `applied`, `refused`), or was sent before (`duplicate`).", Receipt
        ),
        202: Answer("The command is stored: it takes effect once, or is reported as failed.", Receipt),
    },
    errors={
        400: "`bad_request` or `invalid_content`; nothing was stored.",
        403: "`forbidden`: this token may not approve tool calls.",
        409: "`idempotency_mismatch`: the request id was used for another body. `id_taken`: choose another chat id.",
        413: f"`too_large`: a body above 16 MiB, or more text than {MESSAGE_TEXT_MAX_BYTES} bytes. `storage_full`: the "
        "caller stores as much as it may.",
    }
    | NOT_FOUND
    | LIMITED
    | UNAVAILABLE,
)
async def post_command(request: Request) -> Response:
    """`POST /v1/chats/{chat_id}/commands`."""
    edge, principal, chat_id = caller_and_chat_of(request)
    bind_contextvars(chat_id=chat_id, principal=principal.id)  # the request's task has a context of its own
    body = await read_json(request, edge.limits.body_max_bytes)
    command = await _off_the_loop(decode_command, body)
    request_id = command.client_request_id
    bind_contextvars(client_request_id=request_id)
    wait_seconds = _wanted_wait(request, command)
    async with AsyncExitStack() as stack:
        log_messages, ack = None, None
        try:
            authorization = edge.forwarded(request.scope)
            command = await prepared(edge, principal, chat_id, command, len(body))
            to_store = client_post(chat_id, principal, command, await _off_the_loop(body_digest, body))
            if wait_seconds:
                log_messages = await stack.enter_async_context(following(edge, chat_id, principal))
            outcome = await post(edge, command, to_store, principal, authorization)
            status = status_of(edge, command, to_store, outcome)
            release_body(request)
        except (InvalidContent, TooLarge, BadRequest, QueueFull, IdempotencyMismatch) as refusal:
            if isinstance(refusal, StorageFull) and await _was_accepted(edge, principal, chat_id, command, body):
                return answer(200, Receipt("duplicate"))
            edge.metrics.commands_refused.labels(refusal.code).inc()
            # No `ack` for an attachment that was not fetched: the same body may succeed when it is sent again.
            if not isinstance(refusal, NotFetched | IdempotencyMismatch):
                await _publish_refusal(edge, chat_id, principal, command, refusal, body)
            if isinstance(command, SetParams) and isinstance(refusal, BadRequest):
                return answer(400, Failure(refusal.message, refusal.code, refusal.path or None, error=refusal.message))
            return error_response(refusal)
        if status == "accepted":
            with edge.hub.until_closing():  # a stopping process answers 202; the stream reports the outcome as well
                ack = await outcome_within(edge.store, log_messages, request_id, wait_seconds)
    if ack is None:
        return answer(202 if status == "accepted" else 200, Receipt(status))
    if not ack.accepted:
        return answer(200, Receipt("refused", False, ack.result))
    return answer(200, Receipt("aborted" if isinstance(command, Abort) else "applied", True, ack.result))


@Operation(
    "DELETE",
    "/v1/chats/{chat_id}/queue/{client_request_id}",
    "cancelQueued",
    "Remove a waiting command from the queue.",
    tag="commands",
    answers={
        200: Answer("The command will not run; `queue_updated` follows.", Status),
        202: Answer("The request is stored, but its effect is not known yet.", Receipt),
    },
    errors=BAD_ID | {404: "The command does not wait: it is unknown, running or done."} | UNAVAILABLE,
)
async def cancel_queued(request: Request) -> Response:
    """`DELETE /v1/chats/{chat_id}/queue/{client_request_id}`: remove a waiting command from the queue."""
    edge, principal, chat_id = caller_and_chat_of(request)
    target = check_id(request.path_params["client_request_id"], "client_request_id")
    bind_contextvars(chat_id=chat_id, principal=principal.id, client_request_id=target)
    is_cancelled = await carry_out(edge, principal, chat_id, cancel_of(target))
    if is_cancelled is None:
        return answer(202, Receipt("accepted"))
    if is_cancelled:
        return answer(200, Status("cancelled"))
    return answer(404, Failure("no such queued command", "not_found", status="not_found"))


async def _was_accepted(edge: Edge, principal: Principal, chat_id: str, command: Command, body: bytes) -> bool:
    """Return whether a command that the storage limits refuse was already stored by an earlier request. Its sender has
    missed the first answer, and must not be told that the command was refused."""
    request = client_post(chat_id, principal, command, await _off_the_loop(body_digest, body))
    return (await edge.store.post(replace(request, kind="probe", body=b""))).outcome is PostOutcome.DUPLICATE


async def _off_the_loop(read: Callable[[bytes], _T], body: bytes) -> _T:
    """Return the result of `read` for a body; in a thread when the body is large, because reading 16 MB takes tens of
    milliseconds."""
    return await in_large_read(partial(read, body)) if len(body) > THREAD_MIN_BYTES else read(body)


async def _publish_refusal(
    edge: Edge, chat_id: str, principal: Principal, command: Command, refusal: Refused, body: bytes
) -> None:
    """Publish the `ack` of a refused command in the caller's own chat, or in a chat that does not exist yet but has
    readers (DESIGN §4.9). If the same body is refused repeatedly, one `ack` is published. Failures are logged, because
    the caller is answered with the refusal in any case."""
    try:
        meta = await edge.own_or_new(chat_id, principal)
        if meta is None and (isinstance(refusal, StorageFull) or await edge.store.watchers(chat_id) == 0):
            return
        target = command.client_request_id
        digest = hashlib.sha256(body).hexdigest()  # a client repeats the same bytes; `body_digest` would decode them
        refuse = Refuse(
            client_request_id=f"refused:{target}:{digest[:16]}",
            target=target,
            code=refusal.code,
            error=refusal.message,
        )
        request = post_of(chat_id, principal.id, refuse, "refusal", creates=meta is None, about=target)
        await edge.store.post(request)
    except (NotFound, IdTaken):
        return
    except Failed as trouble:
        _log.warning("refusal.not_published", code=refusal.code, error=trouble.message)


def _wanted_wait(request: Request, command: Command) -> float:
    """Return the seconds to wait for the outcome: N of `Prefer: wait=N` (RFC 7240 §4.3), at most 30. Without that
    header, the wait is `ACK_WAIT_SECONDS` for commands that usually take effect at once, and 0 for all other
    commands."""
    for preference in request.headers.get("prefer", "").split(","):
        name, _, value = preference.strip().partition("=")
        if name.lower() == "wait" and re.fullmatch("[0-9]{1,6}", value.strip()):
            return min(float(value), PREFER_WAIT_MAX_SECONDS)
    return ACK_WAIT_SECONDS if isinstance(command, Abort | SetParams) else 0
