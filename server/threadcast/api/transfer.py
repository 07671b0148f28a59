"""The endpoints that export and import chats (PROTOCOL §1, SES-6).

The body of an import is written to a temporary file and checked as a whole; if one line is invalid, the whole body is
refused. Then each chat is posted to its inbox as one command, or as several commands if it is large. So the chat's
actor stays the only writer, and a crash in between loses nothing. A chat that already exists is not changed.
`chat/exports.py` writes the format, and `chat/import_files.py` reads it.
"""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from typing import TypeVar, TypeVarTuple, Unpack

import anyio
import anyio.lowlevel
import anyio.to_thread
import structlog
from msgspec import UNSET
from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from threadcast.api.answers import SLICE_BYTES, AnswerRoom
from threadcast.api.blobs import put_blob
from threadcast.api.edge import Edge, caller_of, own_chat_of
from threadcast.api.errors import ANSWER_HEADERS, answer
from threadcast.api.opening import goodbye
from threadcast.api.operation import BAD_ID, JSON_LINES, LIMITED, NOT_FOUND, UNAVAILABLE, UNREAD, Answer, Operation
from threadcast.api.outcomes import outcome_of
from threadcast.api.posting import post, post_of
from threadcast.api.reading import read_chat_as
from threadcast.api.spool import Spool, spooled
from threadcast.chat.exports import ChatExport, Line, blob_line, export_lines, export_of, hashes_of
from threadcast.chat.import_files import ChatInFile, check_exports, read_blobs, read_parts
from threadcast.chat.internal_commands import ImportChat
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.params import APPROVES_WHOLESALE
from threadcast.store.ports import ChatMeta, LogMessage, PostKind, PostOutcome, PostRequest
from threadcast_protocol.wire.blobs import BLOB_TTL_SECONDS, PRIVATE_MIME
from threadcast_protocol.wire.errors import (
    Forbidden,
    IdTaken,
    Internal,
    NotFound,
    QueueFull,
    ThreadcastError,
    Unavailable,
)
from threadcast_protocol.wire.http import FailedImport, ImportReport
from threadcast_protocol.wire.principal import Principal

__all__ = ["export_chat", "import_chats"]

_log = structlog.get_logger()
_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")

IMPORTS_AT_ONCE = 8
"""Maximum number of chats of one body that are imported concurrently, so that one large body does not crowd out other
requests."""

IMPORT_WAIT_SECONDS = 10.0
"""Seconds that the POST waits for the outcomes of all chats; chats without an outcome by then are reported as
`accepted`."""

PART_WAIT_SECONDS = 10.0
"""Seconds that the POST waits for the next part of a large chat to take effect. The POST waits longer in all, as long
as parts take effect."""

ROOM_PAUSE_SECONDS = 0.25
"""Seconds between two attempts to post a part to an inbox that is full. An inbox has room for 1,000 parts."""

IMPORT_THREADS = 2
"""Threads of this process that read imports. The interpreter runs one thread at a time, so more threads would only slow
down the event loop."""

_threads = anyio.CapacityLimiter(IMPORT_THREADS)
_blob_turn = anyio.CapacityLimiter(1)


@Operation(
    "GET",
    "/v1/chats/{chat_id}/export",
    "exportChat",
    "Export the whole tree of a chat as JSON Lines: a header, a line for each message, then all else in the chat.",
    tag="chats",
    answers={200: Answer("The lines, which `POST /v1/chats/import` accepts.", Line, JSON_LINES)},
    errors=BAD_ID | NOT_FOUND | UNREAD | UNAVAILABLE,
)
async def export_chat(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}/export`: returns the whole tree as JSON Lines, beginning with a header."""
    edge, meta = await own_chat_of(request)
    async with edge.answers.turn(request) as room:
        chat, hashes = await read_chat_as(edge.store, meta.chat_id, _export_and_hashes)
        held = await edge.store.hold_blobs(meta.chat_id, meta.owner, hashes, BLOB_TTL_SECONDS)
        public = {name: facts for name, facts in held.items() if facts.mime != PRIVATE_MIME}
        there = {name: public[name].size_bytes for name in hashes if name in public}
        room.take(await anyio.to_thread.run_sync(_size_of, chat))
    headers = {**ANSWER_HEADERS, "content-disposition": f'attachment; filename="{meta.chat_id}.jsonl"'}
    export = _export(request, edge, meta, room, chat, there)
    return StreamingResponse(export, headers=headers, media_type=JSON_LINES)


def _size_of(chat: ChatExport) -> int:
    return sum(map(len, export_lines(chat)))


def _export_and_hashes(state: OwnerState) -> tuple[ChatExport, tuple[str, ...]]:
    chat = export_of(state)
    return chat, hashes_of(chat)


async def _export(
    request: Request, edge: Edge, meta: ChatMeta, room: AnswerRoom, chat: ChatExport, held: Mapping[str, int]
) -> AsyncGenerator[bytes]:
    """Yield the export in slices: its lines without blobs, and then one blob after the other, because the whole export
    may be too large for memory. If a blob has been deleted, or waits too long for the caller's other answers, the
    answer ends early. The reader notices this by the counts in the header."""
    piece = bytearray()
    for each in export_lines(chat, len(held)):
        piece += each
        while len(piece) >= SLICE_BYTES:
            yield bytes(piece[:SLICE_BYTES])
            del piece[:SLICE_BYTES]
    yield bytes(piece)
    del piece, chat
    for name, size_bytes in held.items():
        room.give_back()  # the client has read these bytes by now, and the turn would wait for them
        async with edge.answers.turn(request, size_bytes * 4 // 3):  # in base64
            blob = await edge.store.get_blob(meta.chat_id, meta.owner, name)
            if blob is None:
                raise NotFound("the chat was deleted while it was exported")
            line = blob_line(blob)
            del blob
        for start in range(0, len(line), SLICE_BYTES):
            yield line[start : start + SLICE_BYTES]
        del line


@Operation(
    "POST",
    "/v1/chats/import",
    "importChats",
    "Import exported chats, under their ids, for the caller.",
    tag="chats",
    body=Line,
    body_media_type=JSON_LINES,
    answers={200: Answer("The result for each chat.", ImportReport)},
    errors={
        400: "`bad_request`: `path` names a wrong line; nothing was imported.",
        413: "`too_large`: the body has too many bytes or chats.",
    }
    | LIMITED
    | UNAVAILABLE,
)
async def import_chats(request: Request) -> Response:
    """`POST /v1/chats/import`: the body is one or more exports, one after the other. The answer has the result for each
    chat."""
    edge, principal = caller_of(request)
    async with spooled(request, edge.limits.import_max_bytes) as file:
        chats = await _check(request, file, edge.limits.import_max_messages)
        results: dict[str, str | ThreadcastError] = {}
        limiter = anyio.CapacityLimiter(IMPORTS_AT_ONCE)
        deadline = anyio.current_time() + IMPORT_WAIT_SECONDS
        async with anyio.create_task_group() as tasks:
            for chat in chats:
                tasks.start_soon(_import, edge, principal, file, chat, results, limiter, deadline)
    return answer(200, _report_of([chat.header.chat_id for chat in chats], results))


async def _check(request: Request, file: Spool, messages_max: int) -> list[ChatInFile]:
    """Check the whole file in a thread, which stops early if the client disconnects or the request is cancelled.

    Raises:
        BadRequest, TooLarge: see `check_exports`.
        ClientDisconnect: the client disconnected; nothing was imported.
    """
    is_left = False

    async def listen() -> None:
        nonlocal is_left
        try:
            await goodbye(request.receive)
        finally:  # also when the request is cancelled, which waits for the thread
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
    """Return the result of `work`, which runs in one of the `IMPORT_THREADS` threads for all imports."""
    return await anyio.to_thread.run_sync(work, *args, limiter=_threads)


def _report_of(order: list[str], results: dict[str, str | ThreadcastError]) -> ImportReport:
    """Return the results of all chats, in the order of the body. A chat's result is an error, or the name of the list
    in the report to which the chat belongs."""
    imported, skipped, accepted = (
        [chat_id for chat_id in order if results[chat_id] == name] for name in ("imported", "skipped", "accepted")
    )
    failed = [
        FailedImport(chat_id, wrong.code, wrong.message)
        for chat_id in order
        if isinstance(wrong := results[chat_id], ThreadcastError)
    ]
    return ImportReport(imported=imported, skipped=skipped, accepted=accepted, failed=failed)


async def _import(
    edge: Edge,
    principal: Principal,
    file: Spool,
    chat: ChatInFile,
    results: dict[str, str | ThreadcastError],
    limiter: anyio.CapacityLimiter,
    deadline: float,
) -> None:
    """Import one chat and put its result into `results`; an error does not stop the other chats."""
    name = chat.header.chat_id
    async with limiter:
        try:
            outcome = results[name] = await _import_one(edge, principal, file, chat, deadline)
        except ThreadcastError as wrong:
            results[name] = wrong
            return
    _log.info("chat.import", chat_id=name, outcome=outcome, message_count=chat.header.message_count)


async def _import_one(edge: Edge, principal: Principal, file: Spool, chat: ChatInFile, deadline: float) -> str:
    """Import one chat. Returns "imported", "skipped" or "accepted". Raises a ThreadcastError whose message the caller
    may see."""
    chat_id, thread = chat.header.chat_id, chat.header.thread
    if "approve" not in principal.permissions and any(
        getattr(thread, key) not in (UNSET, False) for key in APPROVES_WHOLESALE
    ):
        raise Forbidden("this token may not approve tool calls, so it may not import a chat that approves by itself")
    meta = await edge.store.meta(chat_id)
    if meta is not None and meta.owner != principal.id:
        raise IdTaken
    if await edge.store.listed(principal.id, [chat_id]):
        return "skipped"
    async with edge.storage.reserved(principal.id, chat.end - chat.start, creates=chat_id):
        return await _store_chat(edge, principal, file, chat, meta, deadline)


async def _store_chat(
    edge: Edge, principal: Principal, file: Spool, chat: ChatInFile, meta: ChatMeta | None, deadline: float
) -> str:
    """Store the chat and wait for the outcome. Returns the same values and raises the same errors as `_import_one`."""
    chat_id = chat.header.chat_id
    if chat.header.blob_count:
        await _put_blobs(edge, principal, file, chat)
    async with edge.store.follow(chat_id) as log_messages:
        outcome, last = await _lay_down(edge, principal, file, chat, meta)
        match outcome:
            case PostOutcome.ACCEPTED:
                edge.metrics.commands_accepted.labels("import").inc()
            case PostOutcome.DUPLICATE:  # the same body was sent before: the import has taken effect, or still waits
                if await edge.store.listed(principal.id, [chat_id]):
                    return "imported"
                if not chat.header.message_count:
                    return "skipped"  # a chat without messages is in no list: it exists already, or will exist soon
            case PostOutcome.FULL:
                raise QueueFull("too many commands are waiting in this chat; try again later")
            case PostOutcome.FOREIGN:
                raise IdTaken
            case PostOutcome.GONE:
                raise NotFound("no such chat")
            case _:
                raise Internal("the import could not be posted")
        try:
            return await _wait(edge, principal, chat_id, last, log_messages, deadline)
        except Unavailable as trouble:  # the import is stored all the same
            _log.warning("import.not_followed", chat_id=chat_id, error=trouble.message)
    return "accepted"


async def _put_blobs(edge: Edge, principal: Principal, file: Spool, chat: ChatInFile) -> None:
    """Store the blobs one after the other, so that all imports together hold one blob in memory. Raises TooLarge,
    NotFound, IdTaken, Unavailable."""
    blobs = read_blobs(file, chat)
    has_more = True
    while has_more:
        async with _blob_turn:
            blob = await _in_thread(_next_of, blobs)
            if has_more := blob is not None:
                await put_blob(edge.store, chat.header.chat_id, principal.id, blob, revives=True)
            del blob


async def _lay_down(
    edge: Edge, principal: Principal, file: Spool, chat: ChatInFile, meta: ChatMeta | None
) -> tuple[PostOutcome, str]:
    """Post all parts to the chat's inbox, in order. Returns the outcome and the request id of the last posted part.
    Parts that were posted before are duplicates, so an interrupted import continues when the client sends it again."""
    parts = read_parts(file, chat)
    outcome, request_id = PostOutcome.UNKNOWN, ""
    while (part := await _in_thread(_next_of, parts)) is not None:
        request = await _in_thread(_request_of, principal, chat, part, meta)
        outcome, request_id = await post(edge, part, request), request.request_id
        with anyio.move_on_after(PART_WAIT_SECONDS):  # until the worker has made room
            while outcome is PostOutcome.FULL and part.part:
                await anyio.sleep(ROOM_PAUSE_SECONDS)
                outcome = await post(edge, part, request)
        if outcome not in (PostOutcome.ACCEPTED, PostOutcome.DUPLICATE):
            break
    return outcome, request_id


def _next_of(items: Iterator[_T]) -> _T | None:
    return next(items, None)


def _request_of(principal: Principal, chat: ChatInFile, part: ImportChat, meta: ChatMeta | None) -> PostRequest:
    """Return the request that posts one part. The same export of the same chat has the same request id, so an import
    that is sent twice takes effect once; after a deletion of the chat the request id differs. Only the first part may
    create the chat, or restore a deleted chat."""
    thread = part.thread if part.thread.owner is UNSET else replace(part.thread, owner=principal.id)
    life = meta.deleted_at if meta is not None else 0
    division = part.import_id.removeprefix(chat.digest[:32])
    digest = hashlib.sha256(f"{life}\n{part.part}\n{chat.digest}{division}".encode()).hexdigest()
    request_id = f"import-{digest[:32]}"
    command = replace(part, client_request_id=request_id, thread=thread)
    kind: PostKind = "exempt" if part.part else "import"
    return post_of(chat.header.chat_id, principal.id, command, kind, digest, creates=not part.part)


async def _wait(
    edge: Edge, principal: Principal, chat_id: str, last: str, log_messages: AsyncIterator[LogMessage], deadline: float
) -> str:
    """Wait until the log contains the outcome of the last part. Returns "imported", or "accepted" when the time is up.
    Raises the chat's refusal as an error."""
    with anyio.CancelScope(deadline=max(deadline, anyio.current_time() + PART_WAIT_SECONDS)) as waiting:
        async for log_message in log_messages:
            waiting.deadline = max(waiting.deadline, anyio.current_time() + PART_WAIT_SECONDS)
            if log_message.kind != "reconnected":  # else the list is checked, because the log is long
                ack = await outcome_of(edge.store, log_message, last)
                if ack is not None and ack.accepted:
                    return "imported"
                if ack is not None:
                    raise _ImportRefused(str(ack.result.get("code")), str(ack.result.get("error")))
            if log_message.entry is None and await edge.store.listed(principal.id, [chat_id]):
                return "imported"  # the entry cannot be read any more, but the chat exists
    return "accepted"


class _ImportRefused(ThreadcastError):
    """The chat's actor refused the import; `code` and the message come from the actor's answer."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
