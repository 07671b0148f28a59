"""Uploads and downloads blobs, and replaces the large parts of commands by references to blobs (PROTOCOL §10).

`store_parts` reads a command's content once, in a thread if it is large, and stores its large parts as blobs of the
chat. After that the command is checked and small, so inbox and log stay small too. `wire/blobs.py` defines how a
message refers to a blob. Only the chat's owner can find out whether a blob exists.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio.to_thread
from msgspec import to_builtins
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.answers import LargeAnswer
from threadcast.api.edge import Edge, caller_and_chat_of, read_body
from threadcast.api.errors import answer
from threadcast.api.operation import BAD_ID, LIMITED, NOT_FOUND, UNAVAILABLE, UNREAD, Answer, Operation
from threadcast.api.storage import SMALL_BYTES
from threadcast.chat.tool_results import keep_result
from threadcast.store.ports import BlobOutcome, BlobPut, Blobs
from threadcast_protocol.wire.blobs import (
    BLOB_MAX_BYTES,
    BLOB_TTL_SECONDS,
    PRIVATE_MIME,
    Blob,
    BlobCollector,
    BlobFacts,
    blob_hashes,
    blob_url,
    image_mime,
    put_inline,
    true_mime,
    with_facts,
)
from threadcast_protocol.wire.commands import (
    Command,
    EditQueued,
    IdeToolResult,
    RestoreMessages,
    RetryFromIndex,
    UpdateMessage,
    UserMessage,
)
from threadcast_protocol.wire.content import BINARY_MAX_BYTES, MESSAGE_TEXT_MAX_BYTES, read_content
from threadcast_protocol.wire.errors import BadRequest, IdTaken, InvalidContent, NotFound, TooLarge
from threadcast_protocol.wire.http import BlobStored
from threadcast_protocol.wire.messages import JsonObject, Part
from threadcast_protocol.wire.principal import Principal

__all__ = ["THREAD_MIN_BYTES", "inline_blobs", "put_blob", "read_blob", "store_content", "store_parts", "upload_blob"]

THREAD_MIN_BYTES = 64 * 1024
"""Content from this size on is checked in a thread. For smaller content, starting the thread would take the event loop
longer than the check."""

INLINED_MAX_BYTES = 16_777_216
"""Maximum bytes of blobs that are inlined in one event or snapshot, equal to the size limit of a request body. A reader
with 300 kB a second receives this many bytes within a minute, so it does not count as stalled."""

Fetch = Callable[[str], Awaitable[Blob | None]]
"""Returns a blob of one chat by its hash; None if the chat has no such blob."""


async def store_parts(edge: Edge, chat_id: str, principal: Principal, command: Command, body_bytes: int) -> Command:
    """Return `command` with its content checked, and its large parts stored and replaced by references.

    Raises:
        InvalidContent: PROTOCOL §10 forbids the content, or it refers to a blob that this chat does not have.
        TooLarge: the command has too much text, or the chat would exceed the maximum number of blobs.
        NotFound, IdTaken: see `put_blob`.
    """
    match command:
        case UserMessage() | RetryFromIndex():
            content, attachments = command.content, command.attachments
        case UpdateMessage() | EditQueued():  # fields that the client left out stay absent
            content, attachments = command.content, command.attachments or []
            if content is None and not attachments:
                return command
        case IdeToolResult():
            return await _store_result(edge, chat_id, principal, command)
        case RestoreMessages():
            return replace(command, messages=await _store_messages(edge, chat_id, principal, command.messages))
        case _:
            return command
    words = [] if content is None and isinstance(command, UpdateMessage | EditQueued) else content
    stored = await store_content(edge.store, chat_id, principal.id, words, attachments, body_bytes=body_bytes)
    if stored is None:
        return command
    if content is None:
        return replace(command, attachments=to_builtins(stored))
    return replace(command, content=stored, attachments=[])


async def _store_result(edge: Edge, chat_id: str, principal: Principal, command: IdeToolResult) -> IdeToolResult:
    """Store the images of a client tool's result beside its text, as for the result of any tool (ATT-4)."""

    async def put(blob: Blob) -> bool:
        request = BlobPut(chat_id=chat_id, owner=principal.id, blob=blob, ttl_seconds=BLOB_TTL_SECONDS)
        return await edge.store.put_blob(request) is BlobOutcome.KEPT

    kept = await keep_result(command.content, "result", chat_id, put)
    return replace(command, content=kept.content, attachments=kept.attachments)


async def _store_messages(
    edge: Edge, chat_id: str, principal: Principal, messages: Sequence[JsonObject]
) -> list[JsonObject]:
    """Store the parts of messages that a client sends back. Content that is not text alone must obey the rules for all
    content (PROTOCOL §10)."""
    stored: list[JsonObject] = []
    for number, message in enumerate(messages):
        parts: list[Part] | None = None
        content = message.get("content")
        if isinstance(content, list) and any(isinstance(p, dict) and p.get("type") != "text" for p in content):
            try:
                parts = await store_content(edge.store, chat_id, principal.id, content)
            except (InvalidContent, TooLarge) as refusal:
                raise type(refusal)(refusal.message, path=f"/messages/{number}{refusal.path}") from None
        stored.append(message if parts is None else {**message, "content": parts})
    return stored


async def store_content(
    store: Blobs,
    chat_id: str,
    owner: str,
    content: object,
    attachments: Sequence[JsonObject] = (),
    *,
    body_bytes: int = THREAD_MIN_BYTES,
    revives: bool = False,
) -> list[Part] | None:
    """Store the large parts of `content` and `attachments`, and return all parts in the form in which the log may hold
    them. Returns None if no part had to be replaced.

    With `revives`, the chat may be a deleted chat that an import restores. From a `body_bytes` of `THREAD_MIN_BYTES`
    on, the content is read in a thread. Raises what `store_parts` raises.
    """
    collector = BlobCollector(chat_id)
    read = partial(read_content, content, attachments, collector=collector)
    parts = await anyio.to_thread.run_sync(read) if body_bytes >= THREAD_MIN_BYTES else read()
    if isinstance(parts, str) or not (collector.blobs or collector.references):
        return None
    wanted = {reference.hash for reference in collector.references} | set(collector.blobs)
    held = await store.hold_blobs(chat_id, owner, sorted(wanted), BLOB_TTL_SECONDS)
    _check_references(collector, held)
    for hash, blob in collector.blobs.items():
        if hash not in held:
            await put_blob(store, chat_id, owner, blob, revives=revives)
    return with_facts(parts, held)


def _check_references(collector: BlobCollector, held: dict[str, BlobFacts]) -> None:
    text_bytes = 0
    for reference in collector.references:
        facts = held.get(reference.hash)
        if facts is None or facts.mime == PRIVATE_MIME:
            raise InvalidContent("this chat holds no such blob; upload it first", path=reference.path)
        if reference.is_image and not facts.mime.startswith("image/"):
            raise InvalidContent("Invalid image: the blob is neither png, jpeg, webp nor gif", path=reference.path)
        if reference.is_image and facts.size_bytes > BINARY_MAX_BYTES:
            raise InvalidContent(f"Invalid image: larger than {BINARY_MAX_BYTES} bytes", path=reference.path)
        if reference.is_text:
            text_bytes += facts.size_bytes
            if text_bytes > MESSAGE_TEXT_MAX_BYTES:
                raise TooLarge(
                    f"the text of a message must be at most {MESSAGE_TEXT_MAX_BYTES} bytes", path=reference.path
                )


async def put_blob(
    store: Blobs,
    chat_id: str,
    owner: str,
    blob: Blob,
    *,
    revives: bool = False,
    ttl_seconds: int = BLOB_TTL_SECONDS,
) -> None:
    """Store a blob for `ttl_seconds`, or for as long as the chat refers to it. With `revives`, the chat may be one that
    was deleted, which an import restores.

    Raises:
        TooLarge: the chat has reached the maximum number of blobs.
        IdTaken: another principal has a chat with this id, or has stored blobs for a chat with this id.
        NotFound: the caller has deleted the chat.
        Unavailable: the store does not answer.
    """
    request = BlobPut(chat_id=chat_id, owner=owner, blob=blob, ttl_seconds=ttl_seconds, revives=revives)
    match await store.put_blob(request):
        case BlobOutcome.FULL:
            raise TooLarge("the chat holds as many blobs as it may; start another one")
        case BlobOutcome.FOREIGN:
            raise IdTaken
        case BlobOutcome.GONE:
            raise NotFound("no such chat")


@Operation(
    "POST",
    "/v1/chats/{chat_id}/blobs",
    "uploadBlob",
    "Store bytes for a chat, so that a command can refer to them. An unused blob is deleted after a day.",
    tag="chats",
    body=bytes,
    body_media_type="*/*",
    body_max_bytes=BLOB_MAX_BYTES,
    answers={201: Answer("The blob is stored.", BlobStored)},
    errors={
        400: "`bad_request`, or `invalid_content`: the Content-Type names an image, and the bytes are none.",
        409: "`id_taken`: choose another chat id.",
        413: "`too_large`: the blob is too large, or the chat has as many blobs as it may have. `storage_full`: the "
        "caller stores as much as it may.",
    }
    | NOT_FOUND
    | LIMITED
    | UNAVAILABLE,
)
async def upload_blob(request: Request) -> Response:
    """`POST /v1/chats/{chat_id}/blobs`: the body is the bytes themselves, Content-Type their type. The chat need not
    exist yet; until the chat exists, the blob belongs to the caller."""
    edge, principal, chat_id = caller_and_chat_of(request)
    announced = request.headers.get("content-length", "")
    await edge.storage.admit(principal.id, int(announced) if announced.isdigit() else SMALL_BYTES + 1)
    data = await read_body(request, min(BLOB_MAX_BYTES, edge.limits.body_max_bytes))
    if not data:
        raise BadRequest("the body is empty; send the bytes of the blob")
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    shown = image_mime(data)
    if said in IMAGE_TYPES and shown is None:
        raise InvalidContent("Invalid image: it is neither png, jpeg, webp nor gif")
    if shown is not None and len(data) > BINARY_MAX_BYTES:
        raise TooLarge(f"Invalid image: larger than {BINARY_MAX_BYTES} bytes")
    collector = BlobCollector(chat_id)
    hash = await anyio.to_thread.run_sync(collector.put, data, said)
    blob = collector.blobs[hash]
    async with edge.storage.reserved(principal.id, len(data)):  # other files may have been stored since the first check
        await put_blob(edge.store, chat_id, principal.id, blob)
    url = blob_url(chat_id, hash)
    return answer(201, BlobStored(url, hash, blob.mime, len(data)), {"Location": url})


IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
"""Types that a browser may display instead of downloading: they contain pixels, but no markup and no script."""

SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cross-Origin-Resource-Policy": "same-site",
    "Cache-Control": "private, max-age=31536000, immutable",
    "Vary": "Authorization, Cookie",
}
"""Headers for foreign bytes from our own origin: browsers must not guess their type, run them, or show them to other
sites, and only browsers may cache them."""


@Operation(
    "GET",
    "/v1/chats/{chat_id}/blobs/{hash}",
    "readBlob",
    "Read the bytes of a large part.",
    tag="chats",
    answers={
        200: Answer("The bytes, which never change.", media_type="*/*"),
        304: Answer("The client has the bytes already (`If-None-Match`).", media_type=""),
    },
    errors=BAD_ID | {404: "`not_found`: the caller has no such chat, or the chat no such blob."} | UNREAD | UNAVAILABLE,
)
async def read_blob(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}/blobs/{hash}`: returns the bytes to the chat's owner."""
    edge, principal, chat_id = caller_and_chat_of(request)
    hash = request.path_params["hash"]
    if not re.fullmatch("[0-9a-f]{64}", hash):
        raise NotFound("no such blob")
    etag = f'"{hash}"'
    headers = {**SAFE_HEADERS, "ETag": etag}
    known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
    facts = (await edge.store.hold_blobs(chat_id, principal.id, [hash], 0)).get(hash)
    if facts is None or facts.mime == PRIVATE_MIME:
        raise NotFound("no such blob")
    if etag in known:
        return Response(status_code=304, headers=headers)
    async with edge.answers.turn(request, facts.size_bytes):
        blob = await edge.store.get_blob(chat_id, principal.id, hash)
    if blob is None:  # deleted meanwhile
        raise NotFound("no such blob")
    mime = true_mime(blob.data, blob.mime)  # older versions stored the types of imports unchecked
    headers["Content-Disposition"] = "inline" if mime in IMAGE_TYPES else "attachment"
    response = LargeAnswer(blob.data, headers=headers)
    response.headers["Content-Type"] = mime
    return response


async def inline_blobs(raw: bytes, fetch: Fetch, max_bytes: int = INLINED_MAX_BYTES) -> bytes:
    """Return `raw`, the JSON of a snapshot, an event or an export, with data in place of references, for clients that
    cannot fetch blobs.

    `fetch` reads a blob of the chat that the JSON is about. A reference stays a reference if its blob is not found, or
    if `max_bytes` of data are already inlined.
    """
    found: dict[str, Blob] = {}
    total_bytes = 0
    for hash in blob_hashes(raw):
        if total_bytes >= max_bytes:
            break
        blob = await fetch(hash)
        if blob is not None and blob.mime != PRIVATE_MIME:
            found[hash] = blob
            total_bytes += len(blob.data)
    if not found:
        return raw
    return await anyio.to_thread.run_sync(put_inline, raw, found)
