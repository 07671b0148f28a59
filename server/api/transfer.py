"""Chats out of the house and back in: `GET …/export` and `POST /v1/chats/import` (PROTOCOL §1, SES-6).

An import is spooled to a file, checked as a whole, and then laid into the inboxes of its chats, a large chat as several
commands: there is still one writer for each chat, and a crash in between loses nothing. `protocol/exports.py` says what
is written of a chat, and `protocol/import_files.py` reads it. The rule: a body with one bad line imports nothing; a
chat that is there is never touched.
"""

import hashlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import TypeVar, TypeVarTuple, Unpack

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import structlog
from msgspec import UNSET
from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from protocol.blobs import BLOB_TTL_SECONDS
from protocol.commands import ImportChat, encode_command
from protocol.decider import APPROVES_WHOLESALE
from protocol.errors import Forbidden, Internal, NotFound, QueueFull, ThreadcastError, TooLarge, Unavailable
from protocol.exports import ChatExport, blob_line, export_lines, export_of, hashes_of
from protocol.import_files import ChatInFile, check_exports, read_blobs, read_parts
from protocol.principal import SYSTEM, Principal
from protocol.state import ChatState
from server.api.chats import own_chat
from server.api.edge import Edge, edge_of
from server.api.errors import ANSWER_HEADERS, answer
from server.api.opening import goodbye
from server.api.outcomes import outcome_of, post_until_answered
from server.api.reading import read_chat_as
from server.api.spool import Spool, spooled
from server.store.port import BlobOutcome, BlobPut, ChatMeta, Notice, PostOutcome, PostRequest

__all__ = ["export_chat", "import_chats"]

_log = structlog.get_logger()
_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")

IMPORTS_AT_ONCE = 8
"""Chats of one body that are laid down and waited for at a time; one large body must not crowd out other requests."""

IMPORT_WAIT_SECONDS = 10.0
"""How long the POST waits for all effects; what has not happened by then is reported as `accepted`."""

PART_WAIT_SECONDS = 10.0
"""The same limit for each further part of a large chat; the request waits on while parts take effect."""

IMPORT_THREADS = 2
"""Threads of this process that read imports. The interpreter lets one thread run at a time, so more of them would only
take more turns from the event loop, and threads of the common pool from everybody else."""

_threads = anyio.CapacityLimiter(IMPORT_THREADS)

PIECE_BYTES = 262_144
"""The size of the pieces in which an export is sent."""


async def export_chat(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}/export`: the whole tree as JSON Lines, header first."""
    edge = edge_of(request)
    meta = await own_chat(edge, request)
    chat, hashes = await read_chat_as(edge.store, meta.chat_id, _export_and_hashes)
    held = await edge.store.hold_blobs(meta.chat_id, meta.owner, hashes, BLOB_TTL_SECONDS)
    there = [name for name in hashes if name in held]
    headers = {**ANSWER_HEADERS, "content-disposition": f'attachment; filename="{meta.chat_id}.jsonl"'}
    return StreamingResponse(
        _export(edge, meta, chat, there),
        headers=headers,
        media_type="application/jsonl",
    )


def _export_and_hashes(state: ChatState) -> tuple[ChatExport, tuple[str, ...]]:
    chat = export_of(state)
    return chat, hashes_of(chat)


async def _export(edge: Edge, meta: ChatMeta, chat: ChatExport, held: Sequence[str]) -> AsyncGenerator[bytes]:
    """Yield the export in pieces, because a chat may be too large to hold in memory. A blob that is gone when its turn
    comes ends the answer early; the reader notices it by the counts in the header."""
    piece = bytearray()
    for line in export_lines(chat, len(held)):
        piece += line
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    for name in held:
        blob = await edge.store.get_blob(meta.chat_id, meta.owner, name)
        if blob is None:
            raise NotFound("the chat was deleted while it was exported")
        piece += blob_line(blob)
        yield bytes(piece)
        piece.clear()
    yield bytes(piece)


async def import_chats(request: Request) -> Response:
    """`POST /v1/chats/import`: one or several exports one after the other; says of each chat what became of it."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    async with spooled(request, edge.import_max_bytes) as file:
        chats = await _check(request, file, edge.import_messages_max_count)
        report = _Report()
        limiter = anyio.CapacityLimiter(IMPORTS_AT_ONCE)
        deadline = anyio.current_time() + IMPORT_WAIT_SECONDS
        async with anyio.create_task_group() as tasks:
            for chat in chats:
                tasks.start_soon(_import, edge, principal, file, chat, report, limiter, deadline)
    return answer(200, report.body([chat.header.chat_id for chat in chats]))


async def _check(request: Request, file: Spool, messages_max: int) -> list[ChatInFile]:
    """Check the whole file in a thread, which ends early when the caller leaves or the request is cancelled.

    Raises:
        BadRequest, TooLarge: as `check_exports`.
        ClientDisconnect: the caller left; nothing was imported.
    """
    is_left = False

    async def listen() -> None:
        nonlocal is_left
        try:
            await goodbye(request.receive)
        finally:  # also when the request is cancelled: the thread is waited for, so it must be told
            is_left = True
        tasks.cancel_scope.cancel()

    chats: list[ChatInFile] | None = None
    refusal: ThreadcastError | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        try:
            chats = await _in_thread(check_exports, file.until(lambda: is_left), messages_max)
        except ThreadcastError as wrong:
            refusal = wrong
        except ClientDisconnect:
            pass
        tasks.cancel_scope.cancel()
    if refusal is not None:
        raise refusal
    if chats is None:
        await anyio.lowlevel.checkpoint_if_cancelled()
        raise ClientDisconnect
    return chats


async def _in_thread(work: Callable[[Unpack[_Args]], _T], *args: *_Args) -> _T:
    """The result of `work`, which reads imports in a thread. All imports together have IMPORT_THREADS of them."""
    return await anyio.to_thread.run_sync(work, *args, limiter=_threads)


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
    edge: Edge,
    principal: Principal,
    file: Spool,
    chat: ChatInFile,
    report: _Report,
    limiter: anyio.CapacityLimiter,
    deadline: float,
) -> None:
    """One chat; its trouble is reported, and the others go on."""
    name = chat.header.chat_id
    async with limiter:
        try:
            word = await _import_one(edge, principal, file, chat, deadline)
        except ThreadcastError as wrong:
            report.failures[name] = wrong
            return
    report.words[name] = word
    _log.info("chat.import", chat_id=name, outcome=word, message_count=chat.header.message_count)


async def _import_one(edge: Edge, principal: Principal, file: Spool, chat: ChatInFile, deadline: float) -> str:
    """imported, skipped or accepted. Raises any of our errors, fit for the caller."""
    chat_id, thread = chat.header.chat_id, chat.header.thread
    if "approve" not in principal.permissions and any(
        getattr(thread, key) not in (UNSET, False) for key in APPROVES_WHOLESALE
    ):
        raise Forbidden("this token may not approve tool calls, so it may not import a chat that approves by itself")
    meta = await edge.store.meta(chat_id)
    if meta is not None and meta.owner != principal.id:
        raise NotFound("no such chat")  # as every other verb says of somebody else's
    if await edge.store.listed(principal.id, [chat_id]):
        return "skipped"
    if chat.header.blob_count:
        await _put_blobs(edge, principal, file, chat)
    async with edge.store.follow(chat_id) as notices:
        outcome, last = await _lay_down(edge, principal, file, chat, meta)
        match outcome:
            case PostOutcome.ACCEPTED:
                edge.metrics.commands_accepted.labels("import").inc()
            case PostOutcome.DUPLICATE:  # the same body, sent before: either done or still to come
                if await edge.store.listed(principal.id, [chat_id]):
                    return "imported"
                if not chat.header.message_count:
                    return "skipped"  # a chat without messages is in no list; it was there, or is about to be
            case PostOutcome.FULL:
                raise QueueFull("too many commands are waiting in this chat; try again later")
            case PostOutcome.FOREIGN | PostOutcome.GONE:
                raise NotFound("no such chat")
            case _:
                raise Internal("the import could not be laid down")
        try:
            return await _wait(edge, principal, chat_id, last, notices, deadline)
        except Unavailable as trouble:  # it is kept all the same
            _log.warning("import.not_followed", chat_id=chat_id, error=trouble.message)
    return "accepted"


async def _put_blobs(edge: Edge, principal: Principal, file: Spool, chat: ChatInFile) -> None:
    """Store the blobs one after the other, so that one is in memory at a time. Raises TooLarge, NotFound,
    Unavailable."""
    name, blobs = chat.header.chat_id, read_blobs(file, chat)
    while (blob := await _in_thread(_next_of, blobs)) is not None:
        put = BlobPut(chat_id=name, owner=principal.id, blob=blob, ttl_seconds=BLOB_TTL_SECONDS, revives=True)
        outcome = await edge.store.put_blob(put)
        if outcome is BlobOutcome.FULL:
            raise TooLarge("the chat holds as many blobs as it may")
        if outcome is not BlobOutcome.KEPT:
            raise NotFound("no such chat")


async def _lay_down(
    edge: Edge, principal: Principal, file: Spool, chat: ChatInFile, meta: ChatMeta | None
) -> tuple[PostOutcome, str]:
    """Post all parts to the chat's inbox, in order. Returns the result of the last one that was posted, and its request
    id. Parts that are there already are duplicates, so an interrupted import goes on when it is sent again."""
    parts = read_parts(file, chat)
    outcome, request_id = PostOutcome.UNKNOWN, ""
    while (part := await _in_thread(_next_of, parts)) is not None:
        post = await _in_thread(_request_of, principal, chat, part, meta)
        outcome, request_id = (await post_until_answered(edge.store, post)).outcome, post.request_id
        if outcome not in (PostOutcome.ACCEPTED, PostOutcome.DUPLICATE):
            break
    return outcome, request_id


def _next_of(items: Iterator[_T]) -> _T | None:
    return next(items, None)


def _request_of(principal: Principal, chat: ChatInFile, part: ImportChat, meta: ChatMeta | None) -> PostRequest:
    """The same for the same export into the same life of a chat: sent twice it has one effect, and after another
    delete it is a new one. Only the first part may bring a chat into being, or back."""
    thread = part.thread if part.thread.owner is UNSET else replace(part.thread, owner=principal.id)
    life = meta.deleted_at if meta is not None else 0
    digest = hashlib.sha256(b"%d\n%d\n" % (life, part.part) + chat.digest.encode()).hexdigest()
    request_id = f"import-{digest[:32]}"
    return PostRequest(
        chat_id=chat.header.chat_id,
        owner=principal.id,
        principal=msgspec.json.encode(SYSTEM),
        request_id=request_id,
        digest=digest,
        nonce=secrets.token_hex(8),
        body=encode_command(replace(part, client_request_id=request_id, thread=thread)),
        kind="exempt" if part.part else "import",
        creates=not part.part,
    )


async def _wait(
    edge: Edge, principal: Principal, chat_id: str, last: str, notices: AsyncIterator[Notice], deadline: float
) -> str:
    """Wait until the log tells the outcome of the last part. Raises the refusal."""
    with anyio.CancelScope(deadline=max(deadline, anyio.current_time() + PART_WAIT_SECONDS)) as waiting:
        async for notice in notices:
            waiting.deadline = max(waiting.deadline, anyio.current_time() + PART_WAIT_SECONDS)
            if notice.kind != "reconnected":  # then the list says it; the log of such a chat is long
                ack = await outcome_of(edge.store, notice, last)
                if ack is not None and ack.accepted:
                    return "imported"
                if ack is not None:
                    raise _ImportRefused(str(ack.result.get("code")), str(ack.result.get("error")))
            if notice.entry is None and await edge.store.listed(principal.id, [chat_id]):
                return "imported"  # its entry is not to be had any more, but the chat is there
    return "accepted"


class _ImportRefused(ThreadcastError):
    """What the chat's writer said."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
