"""Chats out of the house and back in: `GET …/export` and `POST /v1/chats/import` (PROTOCOL §1, SES-6).

An import is a command like any other: it lies in the chat's inbox until the chat's writer carries it out, so there is
still one writer, and a crash in between loses nothing. What a line is, and what of a chat is written, stands in
`protocol/exports.py`. The rule: a body with one bad line imports nothing; a chat that is there is never touched.
"""

import hashlib
import secrets
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread
import msgspec
import structlog
from msgspec import UNSET
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from protocol.blobs import BLOB_TTL_SECONDS
from protocol.commands import ImportChat, encode_command
from protocol.decider import APPROVES_WHOLESALE
from protocol.errors import Forbidden, Internal, NotFound, QueueFull, ThreadcastError, TooLarge, Unavailable
from protocol.exports import ChatExport, export_lines, export_of, hashes_of, read_exports
from protocol.principal import SYSTEM, Principal
from server.api.chats import own_chat
from server.api.edge import Edge, edge_of, read_body
from server.api.errors import ANSWER_HEADERS, answer
from server.api.outcomes import outcome_of, post_until_answered
from server.api.reading import read_chat_as
from server.store.port import BlobOutcome, BlobPut, ChatMeta, Notice, PostOutcome, PostRequest

__all__ = ["export_chat", "import_chats"]

_log = structlog.get_logger()

IMPORTS_AT_ONCE = 8
"""Chats of one body that are laid down and waited for at a time; one large body must not crowd out other requests."""

IMPORT_MAX_BYTES = 67_108_864
"""Of one import, whatever other bodies may be: exports carry their blobs in base64, and a backup that cannot be read
back is none. It is held in memory while it is read."""

IMPORT_WAIT_SECONDS = 10.0
"""How long the POST waits for all effects; what has not happened by then is reported as `accepted`."""


async def export_chat(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}/export`: the whole tree as JSON Lines, header first."""
    edge = edge_of(request)
    meta = await own_chat(edge, request)
    chat = await read_chat_as(edge.store, meta.chat_id, export_of)
    found = [await edge.store.get_blob(meta.chat_id, meta.owner, name) for name in hashes_of(chat)]
    whole = replace(chat, blobs=[blob for blob in found if blob is not None])
    body = await anyio.to_thread.run_sync(lambda: b"".join(export_lines(whole)))
    headers = {**ANSWER_HEADERS, "content-disposition": f'attachment; filename="{meta.chat_id}.jsonl"'}
    return Response(body, headers=headers, media_type="application/jsonl")


async def import_chats(request: Request) -> Response:
    """`POST /v1/chats/import`: one or several exports one after the other; says of each chat what became of it."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    body = await read_body(request, max(edge.body_max_bytes, IMPORT_MAX_BYTES))
    chats = await anyio.to_thread.run_sync(read_exports, body)
    report = _Report()
    limiter = anyio.CapacityLimiter(IMPORTS_AT_ONCE)
    deadline = anyio.current_time() + IMPORT_WAIT_SECONDS
    async with anyio.create_task_group() as tasks:
        for chat in chats:
            tasks.start_soon(_import, edge, principal, chat, report, limiter, deadline)
    return answer(200, report.body([chat.chat_id for chat in chats]))


class _Report:
    """What became of each chat."""

    def __init__(self) -> None:
        self.words: dict[str, str] = {}
        self.failures: dict[str, ThreadcastError] = {}

    def body(self, order: list[str]) -> dict[str, object]:
        """In the order of the body that was sent."""
        told: dict[str, object] = {
            word: [chat_id for chat_id in order if self.words.get(chat_id) == word]
            for word in ("imported", "skipped", "accepted")
        }
        told["failed"] = [
            {"id": chat_id, "code": wrong.code, "error": wrong.message}
            for chat_id in order
            if (wrong := self.failures.get(chat_id)) is not None
        ]
        return told


async def _import(
    edge: Edge, principal: Principal, chat: ChatExport, report: _Report, limiter: anyio.CapacityLimiter, deadline: float
) -> None:
    """One chat; its trouble is reported, and the others go on."""
    async with limiter:
        try:
            word = await _import_one(edge, principal, chat, deadline)
        except ThreadcastError as wrong:
            report.failures[chat.chat_id] = wrong
            return
    report.words[chat.chat_id] = word
    _log.info("chat.import", chat_id=chat.chat_id, outcome=word, message_count=len(chat.messages))


async def _import_one(edge: Edge, principal: Principal, chat: ChatExport, deadline: float) -> str:
    """imported, skipped or accepted. Raises any of our errors, fit for the caller."""
    if "approve" not in principal.permissions and any(
        getattr(chat.thread, key) not in (UNSET, False) for key in APPROVES_WHOLESALE
    ):
        raise Forbidden("this token may not approve tool calls, so it may not import a chat that approves by itself")
    meta = await edge.store.meta(chat.chat_id)
    if meta is not None and meta.owner != principal.id:
        raise NotFound("no such chat")  # as every other verb says of somebody else's
    if await edge.store.listed(principal.id, [chat.chat_id]):
        return "skipped"
    post = _request_of(principal, chat, meta)
    for blob in chat.blobs:
        put = BlobPut(chat_id=chat.chat_id, owner=principal.id, blob=blob, ttl_seconds=BLOB_TTL_SECONDS, revives=True)
        outcome = await edge.store.put_blob(put)
        if outcome is not BlobOutcome.KEPT:
            raise (
                TooLarge("the chat holds as many blobs as it may")
                if outcome is BlobOutcome.FULL
                else NotFound("no such chat")
            )
    async with edge.store.follow(chat.chat_id) as notices:
        posted = await post_until_answered(edge.store, post)
        match posted.outcome:
            case PostOutcome.ACCEPTED:
                edge.metrics.commands_accepted.labels("import").inc()
            case PostOutcome.DUPLICATE:  # the same body, sent before: either done or still to come
                if await edge.store.listed(principal.id, [chat.chat_id]):
                    return "imported"
                if not chat.messages:
                    return "skipped"  # a chat without messages is in no list; it was there, or is about to be
            case PostOutcome.FULL:
                raise QueueFull("too many commands are waiting in this chat; try again later")
            case PostOutcome.FOREIGN:
                raise NotFound("no such chat")
            case _:
                raise Internal("the import could not be laid down")
        try:
            with anyio.CancelScope(deadline=deadline):
                return await _wait(edge, principal, post, notices)
        except Unavailable as trouble:  # it is kept all the same
            _log.warning("import.not_followed", chat_id=chat.chat_id, error=trouble.message)
    return "accepted"


def _request_of(principal: Principal, chat: ChatExport, meta: ChatMeta | None) -> PostRequest:
    """The same for the same export into the same life of a chat: sent twice it has one effect, and after another
    delete it is a new one."""
    thread = chat.thread if chat.thread.owner is UNSET else replace(chat.thread, owner=principal.id)
    command = ImportChat(
        client_request_id="import",
        thread=thread,
        messages=chat.messages,
        leaf_id=chat.leaf_id,
        payloads=chat.payloads,
        agents=chat.agents,
    )
    life = meta.deleted_at if meta is not None else 0
    digest = hashlib.sha256(b"%d\n" % life + encode_command(command)).hexdigest()
    request_id = f"import-{digest[:32]}"
    return PostRequest(
        chat_id=chat.chat_id,
        owner=principal.id,
        principal=msgspec.json.encode(SYSTEM),
        request_id=request_id,
        digest=digest,
        nonce=secrets.token_hex(8),
        body=encode_command(replace(command, client_request_id=request_id)),
        kind="import",
        creates=True,
    )


async def _wait(edge: Edge, principal: Principal, post: PostRequest, notices: AsyncIterator[Notice]) -> str:
    """Until the log tells what became of it. Raises the refusal."""
    async for notice in notices:
        ack = await outcome_of(edge.store, notice, post.request_id)
        if ack is not None and ack.accepted:
            return "imported"
        if ack is not None:
            raise _ImportRefused(str(ack.result.get("code")), str(ack.result.get("error")))
        if notice.entry is None and await edge.store.listed(principal.id, [post.chat_id]):
            return "imported"  # its entry is not to be had any more, but the chat is there
    return "accepted"


class _ImportRefused(ThreadcastError):
    """What the chat's writer said."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
