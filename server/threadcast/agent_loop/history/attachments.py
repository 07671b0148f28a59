"""Prepares the attachments of a request for a model. References are replaced by bytes, text files are replaced by their
text, and parts that the model does not accept are left out.

`build_request` is pure and keeps the references that the log contains. The agent loop calls `resolve` on the request
before it sends the request to a provider. The callback `fetch` reads the bytes of a reference, and the adapters in
`providers/` convert the parts for vendors. A note replaces each omitted part, so that the model can tell the user about
it. A resolved request has no references.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import TypeVar

import anyio.to_thread
import msgspec
import structlog
from msgspec.structs import replace

from threadcast.chat.tool_results import cut_text
from threadcast.providers.base import ModelInfo, Request
from threadcast.providers.unchanged import Unchanged
from threadcast_protocol.wire.blobs import Blob, data_url, decode_base64, encode_base64, parse_blob_url
from threadcast_protocol.wire.content import MESSAGE_TEXT_MAX_BYTES
from threadcast_protocol.wire.messages import (
    AudioPart,
    FilePart,
    ImagePart,
    ImageUrl,
    InputAudio,
    JsonObject,
    Message,
    Part,
    TextPart,
)

__all__ = ["Fetch", "resolve", "resolved_messages"]

_log = structlog.get_logger()

_M = TypeVar("_M", bound=Message)

Fetch = Callable[[str], Awaitable[Blob | None]]
"""Fetches a blob of the chat by its hash; returns None when the blob no longer exists."""

REQUEST_MAX_BYTES = 32 * 1024 * 1024
"""The maximum total size of a request's decoded attachments. The newest attachments are included first. In base64, this
size is less than 50 MB, the largest request that providers accept."""

THREAD_MIN_BYTES = 256 * 1024
"""Data of at least this size is encoded in a thread. Encoding this number of bytes blocks the event loop for half a
millisecond."""

NO_FILES = "this model takes no files of this kind"

_TEXT_TYPES = (
    "json x-ndjson xml yaml x-yaml toml csv sql javascript x-javascript typescript x-sh x-python x-httpd-php "
    "graphql x-tex"
)
_TEXT_MIMES = frozenset(f"application/{name}" for name in _TEXT_TYPES.split())
_UNTOLD_MIMES = frozenset({"application/octet-stream", "binary/octet-stream"})
_SUFFIXES = (
    "txt md rst csv tsv json jsonl yaml yml toml ini cfg conf env log xml html css svelte vue tex diff patch sql py "
    "pyi rb go rs java kt swift c h cc cpp hpp cs js mjs jsx ts tsx php pl lua sh bash zsh ps1 r jl scala ex exs erl "
    "hs clj"
)
_TEXT_SUFFIXES = frozenset(_SUFFIXES.split())
"""The suffixes of text files. They are needed because most source code has no mime type of its own."""


async def resolve(
    request: Request, info: ModelInfo | None, fetch: Fetch, note: Callable[[str], None] | None = None
) -> Request:
    """Return `request` with the attachments that its model accepts. If `info` is None, it is unknown which kinds of
    parts the model accepts, so all parts are sent. `note` is called for each omitted part with a line that contains the
    reason (PROV-8)."""
    unchanged = request.unchanged
    plain = _Plain() if unchanged is None else unchanged.fold("plain", request.messages, _Plain(), _Plain.plus)
    later = request.messages[plain.count :]
    if not plain.has_ended and not any(map(_has_attachments, later)):
        return request
    messages, left_out = await resolved_messages(later, info, fetch)
    if note is not None:
        for line in left_out:
            note(line)
    if left_out:
        _log.info("attachments.left_out", model=request.model, count=len(left_out), first=left_out[0])
    return replace(
        request,
        messages=[*request.messages[: plain.count], *messages],
        unchanged=None if unchanged is None else Unchanged(plain.count, unchanged.made),
    )


async def resolved_messages(messages: Sequence[_M], info: ModelInfo | None, fetch: Fetch) -> tuple[list[_M], list[str]]:
    """Return the messages with the attachments that the model accepts, and one line with the reason for each omitted
    part."""
    resolver = _Resolver(info, fetch)
    # Start with the newest message, so that the oldest attachments are left out if there are too many bytes.
    found = [await resolver.message(message) for message in reversed(messages)]
    return found[::-1], resolver.left_out


def _has_attachments(message: Message) -> bool:
    if message.role == "tool":
        return bool(message.attachments)
    is_plain = isinstance(message.content, str) or all(isinstance(part, TextPart) for part in message.content)
    return not is_plain or bool(message.context_files)


class _Plain(msgspec.Struct, frozen=True):
    """The number of messages before the first message with attachments. `has_ended` is True if there is such a
    message."""

    count: int = 0
    has_ended: bool = False

    def plus(self, messages: Sequence[Message]) -> "_Plain":
        if self.has_ended:
            return self
        more = next((index for index, each in enumerate(messages) if _has_attachments(each)), None)
        return _Plain(self.count + len(messages)) if more is None else _Plain(self.count + more, True)


class _LeftOut(Exception):
    """Raised when a part must be left out of the request, with the reason."""


class _Resolver:
    """Resolves the messages of one request. `left_out` lists the omitted parts with the reasons."""

    def __init__(self, info: ModelInfo | None, fetch: Fetch) -> None:
        self._takes_images = info is None or info.supports_images
        self._takes_audio = info is None or info.supports_audio
        self._takes_files = info is None or info.supports_files
        self._fetch = fetch
        self._room_bytes = REQUEST_MAX_BYTES
        self.left_out: list[str] = []

    async def message(self, message: _M) -> _M:
        if not _has_attachments(message):
            return message
        if message.role == "tool":
            return await self._tool_message(message)
        content = message.content
        parts: Sequence[Part] = [TextPart(content)] if isinstance(content, str) else content
        shown = [await self._part(part) for part in parts]
        first = [
            TextPart(_labelled(_file_name(file), str(file.get("file_content", file.get("content", "")))))
            for file in message.context_files
        ]
        return replace(message, content=[*first, *_attachments_first(parts, shown)])

    async def _tool_message(self, message: _M) -> _M:
        """Add the images of a tool's result, if the model accepts images. The text of the result already mentions the
        images (ATT-4)."""
        if not self._takes_images:
            return message
        said: list[Part] = [TextPart(message.content)] if isinstance(message.content, str) else list(message.content)
        urls = [item["url"] for item in message.attachments if item.get("type") == "image_url" and item.get("url")]
        images = [await self._part(ImagePart(ImageUrl(str(url)))) for url in urls]
        return replace(message, content=[*said, *images])

    async def _part(self, part: Part) -> Part:
        what = ""
        try:
            match part:
                case ImagePart():
                    what = "image"
                    return await self._image(part)
                case AudioPart():
                    what = "audio"
                    return await self._audio(part)
                case FilePart():
                    what = f"file {part.name}"
                    return await self._file(part)
                case _:
                    return part
        except _LeftOut as reason:
            self.left_out.append(f"{what}: {reason}")
            return TextPart(f"[{what} left out: {reason}]")

    async def _image(self, part: ImagePart) -> Part:
        if not self._takes_images:
            raise _LeftOut("this model takes no images")
        url = part.image_url.url
        named = parse_blob_url(url)
        if named is None and not url.startswith("data:image/"):
            raise _LeftOut("it is not stored on this server")
        if named is None:
            self._take(len(url) * 3 // 4)
            return part
        blob = await self._fetched(named[1])
        self._take(len(blob.data))
        url = await _in_thread(blob.data, lambda: data_url(blob.mime, blob.data))
        return ImagePart(ImageUrl(url, part.image_url.detail))

    async def _audio(self, part: AudioPart) -> Part:
        sound = part.input_audio
        if not self._takes_audio:
            raise _LeftOut("this model takes no audio")
        if sound.blob is None:
            self._take(len(sound.data) * 3 // 4)
            return part
        data = (await self._fetched(sound.blob)).data
        self._take(len(data))
        return AudioPart(InputAudio(await _in_thread(data, lambda: encode_base64(data)), sound.format))

    async def _file(self, part: FilePart) -> Part:
        if part.text is not None:
            return TextPart(_labelled(part.name, part.text))
        is_text = part.text_blob is not None or _is_text_like(part)
        if not is_text and not self._takes_files:
            raise _LeftOut(NO_FILES)
        hash = part.text_blob or part.blob
        data = decode_base64(part.data or "") if hash is None else (await self._fetched(hash)).data
        if is_text and (text := _text_in(data)) is not None:
            return TextPart(_labelled(part.name, text))
        if not self._takes_files:
            raise _LeftOut(NO_FILES)
        self._take(len(data))
        return FilePart(part.name, part.mime, data=await _in_thread(data, lambda: encode_base64(data)))

    async def _fetched(self, hash: str) -> Blob:
        blob = await self._fetch(hash)
        if blob is None:
            raise _LeftOut("it no longer exists")
        return blob

    def _take(self, size_bytes: int) -> None:
        """Subtract the size of an attachment from the space that is left in the request. Raises _LeftOut when the space
        is too small."""
        if size_bytes > self._room_bytes:
            raise _LeftOut("newer attachments fill the request")
        self._room_bytes -= size_bytes


def _attachments_first(parts: Sequence[Part], shown: Sequence[Part]) -> list[Part]:
    """Put attachments before the user's text (ATT-2). If text and attachments alternate more than once, the order is
    kept, because the order has a meaning."""
    is_text = [isinstance(part, TextPart) for part in parts]
    changes = sum(before != after for before, after in pairwise(is_text))
    if changes > 1:
        return list(shown)
    pairs = list(zip(is_text, shown, strict=True))
    return [*(part for text, part in pairs if not text), *(part for text, part in pairs if text)]


def _labelled(name: str, text: str) -> str:
    return f"File {name}:\n{cut_text(text, MESSAGE_TEXT_MAX_BYTES)}"


def _file_name(file: JsonObject) -> str:
    """Return the name of a context file on one line, with its range of lines if it has one (PROTOCOL §2)."""
    told = next((value for key in ("file_name", "path", "name") if isinstance(value := file.get(key), str)), "")
    name = " ".join(told.split()) or "unnamed"
    first, last = file.get("line1"), file.get("line2")
    return f"{name} (lines {first}-{last})" if isinstance(first, int) and isinstance(last, int) and last else name


def _is_text_like(part: FilePart) -> bool:
    mime = part.mime.partition(";")[0].strip().lower()
    if mime.startswith("text/") or mime.endswith(("+json", "+xml", "+yaml")) or mime in _TEXT_MIMES:
        return True
    return mime in _UNTOLD_MIMES and part.name.rpartition(".")[2].lower() in _TEXT_SUFFIXES


def _text_in(data: bytes) -> str | None:
    """Return the text of `data`; None if `data` is not UTF-8, or contains NUL."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


async def _in_thread(data: bytes, encode: Callable[[], str]) -> str:
    return encode() if len(data) < THREAD_MIN_BYTES else await anyio.to_thread.run_sync(encode)
