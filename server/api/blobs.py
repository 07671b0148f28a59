"""Blobs over HTTP, and the step that keeps large parts out of inbox and log (PROTOCOL §10).

`store_parts` reads a command's content once, off the event loop when it is large, lays what is large beside the chat
and puts references in its place; whoever reads the command afterwards finds it checked and small. Uploads and
downloads are the two routes. What a blob is to a message is `protocol/blobs.py`'s affair, where it lies the store's.
The one rule: nobody but the chat's owner learns that a blob is there.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio.to_thread
from msgspec import to_builtins
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from protocol.blobs import (
    BLOB_MAX_BYTES,
    BLOB_TTL_SECONDS,
    Blob,
    BlobFacts,
    Shelf,
    blob_hashes,
    blob_url,
    image_mime,
    put_inline,
    with_facts,
)
from protocol.commands import (
    Command,
    EditQueued,
    IdeToolResult,
    RestoreMessages,
    RetryFromIndex,
    UpdateMessage,
    UserMessage,
)
from protocol.content import BINARY_MAX_BYTES, TEXT_MAX_BYTES, read_content
from protocol.errors import BadRequest, InvalidContent, NotFound, TooLarge
from protocol.ids import check_chat_id
from protocol.messages import JsonObject, Part
from protocol.principal import Principal
from server.agent.calls.results import keep_result
from server.api.edge import Edge, edge_of, read_body
from server.api.errors import answer
from server.store.port import BlobOutcome, BlobPut, Store

__all__ = ["THREAD_MIN_BYTES", "inline_blobs", "read_blob", "store_content", "store_parts", "upload_blob"]

THREAD_MIN_BYTES = 64 * 1024
"""Checking less than this takes the event loop less time than handing it to a thread would."""

INLINED_MAX_BYTES = 16_777_216
"""Of one event or snapshot: as much as a body may be. A reader that takes 300 kB a second has it within a minute, and
is not taken for one that stalls."""

Fetch = Callable[[str], Awaitable[Blob | None]]
"""A blob of one chat by its hash."""


async def store_parts(edge: Edge, chat_id: str, principal: Principal, command: Command, body_bytes: int) -> Command:
    """`command` with its content checked, and its large parts stored and replaced by references.

    Raises:
        InvalidContent: what PROTOCOL §10 refuses, and a reference to a blob that this chat does not hold.
        TooLarge: too much text, or more blobs than a chat may hold.
        NotFound: the chat is somebody else's, or deleted.
    """
    match command:
        case UserMessage() | RetryFromIndex():
            content, attachments = command.content, command.attachments
        case UpdateMessage() | EditQueued():  # absent fields stay absent
            content, attachments = command.content, command.attachments or []
            if content is None and not attachments:
                return command
        case IdeToolResult():
            return await _store_result(edge, chat_id, principal, command)
        case RestoreMessages():
            return replace(command, messages=await _store_messages(edge, chat_id, principal, command.messages))
        case _:
            return command
    words = [] if content is None else content
    stored = await store_content(edge.store, chat_id, principal.id, words, attachments, body_bytes=body_bytes)
    if stored is None:
        return command
    if content is None:
        return replace(command, attachments=to_builtins(stored))
    return replace(command, content=stored, attachments=[])


async def _store_result(edge: Edge, chat_id: str, principal: Principal, command: IdeToolResult) -> IdeToolResult:
    """A client's result, its images beside its text as in any tool's (ATT-4)."""

    async def put(blob: Blob) -> bool:
        request = BlobPut(chat_id=chat_id, owner=principal.id, blob=blob, ttl_seconds=BLOB_TTL_SECONDS)
        return await edge.store.put_blob(request) is BlobOutcome.KEPT

    kept = await keep_result(command.content, "result", chat_id, put)
    return replace(command, content=kept.content, attachments=kept.attachments)


async def _store_messages(
    edge: Edge, chat_id: str, principal: Principal, messages: Sequence[JsonObject]
) -> list[JsonObject]:
    """Messages that a client hands back; those with more than text obey the rules of all content (PROTOCOL §10)."""
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
    store: Store,
    chat_id: str,
    owner: str,
    content: object,
    attachments: Sequence[JsonObject] = (),
    *,
    body_bytes: int = THREAD_MIN_BYTES,
    revives: bool = False,
) -> list[Part] | None:
    """The parts as the log may hold them, their bytes stored; None when nothing had to be replaced.

    `revives`: for an import into a deleted chat. Raises as `store_parts` does.
    """
    shelf = Shelf(chat_id)
    read = partial(read_content, content, attachments, shelf=shelf)
    parts = await anyio.to_thread.run_sync(read) if body_bytes >= THREAD_MIN_BYTES else read()
    if isinstance(parts, str) or not (shelf.blobs or shelf.references):
        return None
    wanted = {reference.hash for reference in shelf.references} | set(shelf.blobs)
    held = await store.hold_blobs(chat_id, owner, sorted(wanted), BLOB_TTL_SECONDS)
    _check_references(shelf, held)
    for hash, blob in shelf.blobs.items():
        if hash not in held:
            await _put(
                store, BlobPut(chat_id=chat_id, owner=owner, blob=blob, ttl_seconds=BLOB_TTL_SECONDS, revives=revives)
            )
    return with_facts(parts, held)


def _check_references(shelf: Shelf, held: dict[str, BlobFacts]) -> None:
    text_bytes = 0
    for reference in shelf.references:
        facts = held.get(reference.hash)
        if facts is None:
            raise InvalidContent("this chat holds no such blob; upload it first", path=reference.path)
        if reference.is_image and not facts.mime.startswith("image/"):
            raise InvalidContent("Invalid image: the blob is neither png, jpeg, webp nor gif", path=reference.path)
        if reference.is_image and facts.size_bytes > BINARY_MAX_BYTES:
            raise InvalidContent(f"Invalid image: larger than {BINARY_MAX_BYTES} bytes", path=reference.path)
        if reference.is_text:
            text_bytes += facts.size_bytes
            if text_bytes > TEXT_MAX_BYTES:
                raise TooLarge(f"the text of a message must be at most {TEXT_MAX_BYTES} bytes", path=reference.path)


async def _put(store: Store, request: BlobPut) -> None:
    match await store.put_blob(request):
        case BlobOutcome.FULL:
            raise TooLarge("the chat holds as many blobs as it may; start another one")
        case BlobOutcome.FOREIGN | BlobOutcome.GONE:
            raise NotFound("no such chat")


async def upload_blob(request: Request) -> Response:
    """`POST /v1/chats/{chat_id}/blobs`: the bytes as they are, their type in Content-Type. The chat need not be there
    yet; until it is, they are the uploader's."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    chat_id = check_chat_id(request.path_params["chat_id"])
    data = await read_body(request, min(BLOB_MAX_BYTES, edge.body_max_bytes))
    if not data:
        raise BadRequest("the body is empty; send the bytes of the blob")
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    shown = image_mime(data)
    if said in IMAGE_TYPES and shown is None:
        raise InvalidContent("Invalid image: it is neither png, jpeg, webp nor gif")
    if shown is not None and len(data) > BINARY_MAX_BYTES:
        raise TooLarge(f"Invalid image: larger than {BINARY_MAX_BYTES} bytes")
    shelf = Shelf(chat_id)
    hash = await anyio.to_thread.run_sync(shelf.put, data, said)
    blob = shelf.blobs[hash]
    await _put(edge.store, BlobPut(chat_id=chat_id, owner=principal.id, blob=blob, ttl_seconds=BLOB_TTL_SECONDS))
    url = blob_url(chat_id, hash)
    return answer(201, {"url": url, "hash": hash, "mime": blob.mime, "bytes": len(data)}, {"Location": url})


IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
"""What a browser may show in place: pixels, no markup and no script."""

SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cross-Origin-Resource-Policy": "same-site",
    "Cache-Control": "private, max-age=31536000, immutable",
    "Vary": "Authorization, Cookie",
}
"""Foreign bytes from our own origin: never guessed at, never run, not shown to other sites, kept by browsers alone."""


async def read_blob(request: Request) -> Response:
    """`GET /v1/chats/{chat_id}/blobs/{hash}`: the bytes, for the chat's owner."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    chat_id, hash = check_chat_id(request.path_params["chat_id"]), request.path_params["hash"]
    if not re.fullmatch("[0-9a-f]{64}", hash):
        raise NotFound("no such blob")
    etag = f'"{hash}"'
    headers = {**SAFE_HEADERS, "ETag": etag}
    known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
    if etag in known and hash in await edge.store.hold_blobs(chat_id, principal.id, [hash], 0):
        return Response(status_code=304, headers=headers)
    blob = await edge.store.get_blob(chat_id, principal.id, hash)
    if blob is None:
        raise NotFound("no such blob")
    headers["Content-Disposition"] = "inline" if blob.mime in IMAGE_TYPES else "attachment"
    response = Response(blob.data, headers=headers)
    response.headers["Content-Type"] = blob.mime
    return response


async def inline_blobs(raw: bytes, fetch: Fetch, max_bytes: int = INLINED_MAX_BYTES) -> bytes:
    """`raw`, the JSON of a snapshot, an event or an export, with data in place of references, for who cannot fetch.

    `fetch` reads a blob of the chat that the JSON is about. What it does not find stays a reference, and so does what
    comes after `max_bytes` of data.
    """
    found: dict[str, Blob] = {}
    total_bytes = 0
    for hash in blob_hashes(raw):
        if total_bytes >= max_bytes:
            break
        blob = await fetch(hash)
        if blob is not None:
            found[hash] = blob
            total_bytes += len(blob.data)
    if not found:
        return raw
    return await anyio.to_thread.run_sync(put_inline, raw, found)
