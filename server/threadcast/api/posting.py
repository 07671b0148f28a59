"""Posts commands to the inboxes of chats, for every endpoint: checks them, stores their large parts, and keeps quotas.

A command of a client goes through `prepared`, which makes the checks that do not depend on the chat, and through
`post`, one atomic step in the store that decides the rest (PROTOCOL §3). Commands of the server's own are posted
without checks.
"""

import hashlib
import secrets
from contextlib import suppress
from functools import partial
from typing import Literal, TypeAlias, get_args

import msgspec
import structlog
from msgspec.structs import replace

from threadcast.api.attachments import resolved
from threadcast.api.blobs import put_blob, store_parts
from threadcast.api.declared_tools import check_declared_tools
from threadcast.api.edge import Edge
from threadcast.api.outcomes import following, outcome_within
from threadcast.api.params import checked_params
from threadcast.api.storage import SMALL_BYTES
from threadcast.base.large_reads import in_large_read
from threadcast.chat.internal_commands import CancelQueued, ImportChat, InternalCommand, StoredCommand
from threadcast.chat.restores import read_messages
from threadcast.store.bounds import WHOLE_MAX_BYTES
from threadcast.store.load import load_folded
from threadcast.store.ports import PostKind, PostOutcome, PostRequest
from threadcast_protocol.wire.blobs import PRIVATE_MIME, Blob
from threadcast_protocol.wire.commands import (
    CREATES_CHAT,
    EXEMPT_FROM_QUEUE_LIMIT,
    Abort,
    BranchFromChat,
    Command,
    IdeToolClaim,
    IdeToolResult,
    Queueable,
    RemoveMessage,
    RestoreMessages,
    RetryFromIndex,
    SetParams,
    ToolDecision,
    ToolDecisions,
    UpdateMessage,
    UserMessage,
    body_digest,
    encode_command,
)
from threadcast_protocol.wire.content import check_text, read_context_files
from threadcast_protocol.wire.errors import (
    BadRequest,
    Forbidden,
    IdempotencyMismatch,
    IdTaken,
    NotFound,
    QueueFull,
    Refused,
    TooLarge,
    Unavailable,
)
from threadcast_protocol.wire.principal import SYSTEM, Principal
from threadcast_protocol.wire.thread import OBJECT_MAX_BYTES, is_too_large

__all__ = [
    "ACK_WAIT_SECONDS",
    "cancel_of",
    "carry_out",
    "client_post",
    "lay_down",
    "lay_down_internal",
    "post",
    "post_of",
    "prepared",
    "status_of",
]

_log = structlog.get_logger()

ACK_WAIT_SECONDS = 2.0
"""Seconds that a request waits for the effect of a command that usually takes effect at once: `abort`, `set_params` and
commands of the server's own. After this time the request is answered 202 (PROTOCOL §3)."""

POST_TRIES = 3
"""Maximum number of attempts to post one command while the store does not answer, all with the same nonce. After the
last attempt the request fails with 503."""

BODY_TTL_SECONDS = 7 * 24 * 3_600
"""Seconds that the body of a large command waits for a worker. A worker that comes later refuses the command."""

Kept: TypeAlias = Literal["accepted", "duplicate", "aborted"]
"""The status that the sender of a command gets: the command was stored now, was stored before, or is an abort of a chat
in which nothing runs."""


FREE_BYTES = 4_096
"""Maximum bytes of commands that end or remove something and are therefore accepted even from callers whose storage is
full."""

_ALWAYS_ADMITTED = (Abort, IdeToolClaim, RemoveMessage, ToolDecision, ToolDecisions)

_STARTS_TOOLS = (*get_args(Queueable), ToolDecision, ToolDecisions)
"""Commands after which tools may run that need the caller's credentials. An accepted preview begins a run, too."""


async def prepared(edge: Edge, principal: Principal, chat_id: str, command: Command, body_bytes: int) -> Command:
    """Return `command` as the inbox may hold it: checked, its MCP attachments fetched, its large parts stored as blobs,
    and its mode replaced by the profile's name. `body_bytes` is the size of the request's body.

    Raises:
        InvalidContent, TooLarge, BadRequest, Forbidden: the command may not be posted.
        StorageFull: the principal has reached a storage limit.
        NotFetched: an MCP server did not return an attachment.
        NotFound: the caller has deleted the chat, or the command does not create chats and the caller has no such chat.
        IdTaken: the command creates chats, and another principal has a chat of this id.
    """
    if body_bytes > FREE_BYTES or not isinstance(command, _ALWAYS_ADMITTED):
        # MCP attachments may be larger than the body that names them, so the account is always read anew.
        least_bytes = SMALL_BYTES + 1 if getattr(command, "attachments", None) else 0
        size_bytes = max(body_bytes, least_bytes) + await _copied_bytes(edge, principal, command)
        creates = chat_id if isinstance(command, CREATES_CHAT) else ""
        await edge.storage.admit(principal.id, size_bytes, creates=creates)
    command = await resolved(command, edge.mcp, principal.roles)
    match command:
        case IdeToolResult():
            check_text(command.content, "/content")
        case RestoreMessages():
            read_messages(command.messages)
        case UpdateMessage(content=None, attachments=None):
            raise BadRequest("an edit has content, attachments or both", path="/content")
        case UpdateMessage():
            check_declared_tools(edge, command.tools)
        case RetryFromIndex():
            check_declared_tools(edge, command.tools)
            command = replace(command, params=await checked_params(edge, command.params, "/params"))
        case UserMessage():
            read_context_files(command.context_files)
            check_declared_tools(edge, command.tools)
            command = replace(command, params=await checked_params(edge, command.params, "/params"))
            check = partial(is_too_large, command.context)
            if await in_large_read(check) if body_bytes > OBJECT_MAX_BYTES and command.context else check():
                raise TooLarge(f"context must be at most {OBJECT_MAX_BYTES} bytes of JSON", path="/context")
        case SetParams():
            command = replace(command, patch=await checked_params(edge, command.patch, "/patch"))
        case ToolDecision() | ToolDecisions() if "approve" not in principal.permissions:
            if not await _answers_questions(edge, principal, chat_id, command):
                raise Forbidden(
                    "this token may not approve tool calls; the operator can give it the permission `approve`"
                )
    try:
        return await store_parts(edge, chat_id, principal, command, body_bytes)
    except IdTaken:
        if isinstance(command, CREATES_CHAT):
            raise
        raise NotFound("no such chat") from None


async def _answers_questions(
    edge: Edge, principal: Principal, chat_id: str, command: ToolDecision | ToolDecisions
) -> bool:
    """Return whether all decisions are about questions of the caller's own chat, which are no approvals (PROTOCOL §11).
    A question that was answered a moment ago counts as well, so that the caller learns of that answer."""
    try:
        await edge.own(chat_id, principal)
    except NotFound:
        return False
    decisions = command.decisions if isinstance(command, ToolDecisions) else [command.decision]
    state, _ = await load_folded(edge.store, chat_id, with_facts=True)
    gates = state.private.run.gates if state.private.run is not None else {}
    asked = {key for key, gate in gates.items() if gate.is_question}
    return all(each.tool_call_id in asked for each in decisions)


async def _copied_bytes(edge: Edge, principal: Principal, command: Command | InternalCommand) -> int:
    """Return the bytes of the chat that `command` copies; 0 for all other commands."""
    if not isinstance(command, BranchFromChat):
        return 0
    return await edge.store.chat_bytes(command.source_chat_id, principal.id)


async def post(
    edge: Edge,
    command: Command | InternalCommand,
    request: PostRequest,
    principal: Principal = SYSTEM,
    authorization: str | None = None,
    new_mode: str = "",
) -> PostOutcome:
    """Store `command` in its chat's inbox in one atomic step, within the quota of `principal`. While the store does not
    answer, the same request is sent again.

    For the tools of the command's run, the process keeps `authorization` in memory (TOOL-7), unless the command is
    refused. `new_mode` is the profile of a chat that the command creates. It is set directly before the command and
    after the check of the quota, so that a command over the quota creates no chat.

    Raises:
        QuotaSpent: the principal has used up its quota; nothing was stored.
        TooLarge, NotFound, IdTaken: the chat takes no blob for the body of a large command, which was not posted.
        Unavailable: the store did not answer; the command may have been stored.
    """
    counted = await edge.quotas.spend(principal, request.chat_id, command)
    if new_mode:
        setting = SetParams(client_request_id=f"{command.client_request_id}-mode", patch={"mode": new_mode})
        await post(edge, setting, client_post(request.chat_id, principal, setting), principal)
    if copied_bytes := await _copied_bytes(edge, principal, command):
        request = replace(request, charged_bytes=copied_bytes)
    cache = edge.credential_cache if isinstance(command, _STARTS_TOOLS) else None
    if cache is not None:
        cache.hold(request.owner, request.chat_id, request.request_id, authorization)
    is_large = len(request.body) > WHOLE_MAX_BYTES and not isinstance(command, ImportChat)
    blob = ""
    for left in reversed(range(POST_TRIES)):
        try:
            sent, blob = await _beside(edge, request) if is_large else (request, "")
            outcome = (await edge.store.post(sent)).outcome
            break
        except Unavailable:
            if left == 0:
                raise
        except Refused:
            await edge.quotas.give_back(principal, counted)
            if cache is not None:
                cache.forget(request.owner, request.chat_id, request.request_id)
            raise
    if outcome is not PostOutcome.ACCEPTED:
        await edge.quotas.give_back(principal, counted)
        if blob:
            with suppress(Unavailable):
                await edge.store.drop_blob(request.chat_id, request.owner, blob)
        if cache is not None and outcome not in (PostOutcome.DUPLICATE, PostOutcome.MISMATCH):
            cache.forget(request.owner, request.chat_id, request.request_id)
    return outcome


async def _beside(edge: Edge, request: PostRequest) -> tuple[PostRequest, str]:
    """Store the body of a large command as a private blob of the chat. Returns the request that posts a reference to
    the blob, and the blob's name. If a probe finds that the request id is known, or that the chat does not take the
    command, nothing is stored; the probe is returned, and ''. Safe to repeat. Raises Unavailable, TooLarge, NotFound,
    IdTaken."""
    probe = replace(request, kind="probe", body=b"")
    if (await edge.store.post(probe)).outcome is not PostOutcome.FULL:
        return probe, ""
    name = hashlib.sha256(f"{request.request_id}\n{request.nonce}".encode()).hexdigest()  # no other request has it
    blob = Blob(name, PRIVATE_MIME, request.body)
    await put_blob(edge.store, request.chat_id, request.owner, blob, ttl_seconds=BODY_TTL_SECONDS)
    stored = StoredCommand(client_request_id=request.request_id, blob=name)
    return replace(request, body=encode_command(stored)), name


def status_of(edge: Edge, command: Command, request: PostRequest, outcome: PostOutcome) -> Kept:
    """Return the status that the sender gets for the outcome of a post, and log an accepted command.

    Raises:
        IdempotencyMismatch: the request id was used for another body.
        QueueFull: too many commands wait in the chat.
        IdTaken: the command creates chats, and another principal has a chat of this id.
        NotFound: the caller has no such chat.
    """
    match outcome:
        case PostOutcome.ACCEPTED:
            kind = str(type(command).__struct_config__.tag)
            edge.metrics.commands_accepted.labels(kind).inc()
            _log.info("command.accepted", type=kind, body_bytes=len(request.body))
            return "accepted"
        case PostOutcome.DUPLICATE:
            return "duplicate"
        case PostOutcome.MISMATCH:
            raise IdempotencyMismatch("this client_request_id was used for another body; choose a new one")
        case PostOutcome.FOREIGN if request.creates:
            raise IdTaken
        case PostOutcome.FULL:
            raise QueueFull("too many commands are waiting in this chat; try again when some have run")
    if isinstance(command, Abort):
        return "aborted"
    raise NotFound("no such chat")


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
    of a chat that the command creates.

    Raises:
        InvalidContent, TooLarge, BadRequest, Forbidden: the command may not be posted.
        NotFound, IdTaken, QueueFull: the chat does not take the command.
        QuotaSpent: the principal has used up its quota.
        Unavailable: the store does not answer.
    """
    sent = encode_command(command)
    command = await prepared(edge, principal, chat_id, command, len(sent))
    request = client_post(chat_id, principal, command, body_digest(sent))
    status_of(edge, command, request, await post(edge, command, request, principal, authorization, new_mode))


async def carry_out(edge: Edge, principal: Principal, chat_id: str, command: InternalCommand) -> bool | None:
    """Post a command of the server's own to a chat of the caller's. Returns whether the command had an effect: False
    also if the chat does not exist, None if the outcome did not become known within `ACK_WAIT_SECONDS`. Raises
    Unavailable."""
    async with following(edge, chat_id, principal) as log_messages:
        if await lay_down_internal(edge, principal.id, chat_id, command) is not PostOutcome.ACCEPTED:
            return False
        ack = await outcome_within(edge.store, log_messages, command.client_request_id, ACK_WAIT_SECONDS)
    return None if ack is None else ack.accepted


async def lay_down_internal(edge: Edge, owner: str, chat_id: str, command: InternalCommand) -> PostOutcome:
    """Post a command of the server's own to an existing chat of `owner`; without such a chat the command has no effect.
    Raises Unavailable."""
    return await post(edge, command, post_of(chat_id, owner, command, "exempt"))


def cancel_of(request_id: str) -> CancelQueued:
    """Return the command that removes the waiting command `request_id` from a chat's queue."""
    return CancelQueued(client_request_id=f"cancel:{request_id}:{secrets.token_hex(8)}", target=request_id)


def client_post(chat_id: str, principal: Principal, command: Command, digest: str | None = None) -> PostRequest:
    """Return the request that posts a client's command. `digest` is the digest of the body as the client sent it; with
    None, the digest of the command is used."""
    kind: PostKind = "exempt" if isinstance(command, EXEMPT_FROM_QUEUE_LIMIT) else "normal"
    creates = isinstance(command, CREATES_CHAT)
    return post_of(chat_id, principal.id, command, kind, digest, sender=principal, creates=creates)


def post_of(
    chat_id: str,
    owner: str,
    command: Command | InternalCommand,
    kind: PostKind,
    digest: str | None = None,
    *,
    sender: Principal = SYSTEM,
    creates: bool = False,
    about: str = "",
) -> PostRequest:
    """Return the request that posts a command to a chat of `owner`; the arguments have the meaning of the fields of
    `PostRequest`."""
    body = encode_command(command)
    return PostRequest(
        chat_id=chat_id,
        owner=owner,
        principal=msgspec.json.encode(sender),
        request_id=command.client_request_id,
        digest=digest or body_digest(body),
        nonce=secrets.token_hex(8),
        body=body,
        kind=kind,
        creates=creates,
        about=about,
    )
