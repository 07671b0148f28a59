"""What a model is shown of attachments: bytes in place of references, text files as text, nothing it cannot take.

`build_request` is pure and leaves references as they stand in the log; the agent loop calls `resolve` on its request
before it asks a provider. It knows no store (bytes come through `fetch`) and no vendor's words (the adapters in
`providers/` convert parts). What is left out leaves a note in its place, so that the model can say so. The one rule: a
request never holds a reference, and never a part of a kind that the model does not take.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise

import anyio.to_thread
import structlog
from msgspec.structs import replace

from protocol.blobs import Blob, data_url, decode_base64, encode_base64, parse_blob_url
from protocol.content import TEXT_MAX_BYTES
from protocol.messages import (
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
from server.providers.base import ModelInfo, Request

__all__ = ["Fetch", "cut_text", "resolve"]

_log = structlog.get_logger()

Fetch = Callable[[str], Awaitable[Blob | None]]
"""A blob of the chat by its hash; None when it is gone."""

REQUEST_MAX_BYTES = 32 * 1024 * 1024
"""Attachments of one request, decoded, newest first: in base64 it stays below the 50 MB that providers take at most."""

THREAD_MIN_BYTES = 256 * 1024
"""Encoding less takes the event loop half a millisecond."""

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
"""Source code mostly comes without a mime type of its own."""


async def resolve(
    request: Request, info: ModelInfo | None, fetch: Fetch, note: Callable[[str], None] | None = None
) -> Request:
    """`request` as its model can take it. `info` None: nobody has said what the model takes, so all is sent. `note` is
    told of each thing that is left out, and why (PROV-8)."""
    if not any(_has_attachments(message) for message in request.messages):
        return request
    resolver = _Resolver(info, fetch)
    # From the newest on: when there are too many bytes, the oldest are what a conversation misses least.
    messages = [await resolver.message(message) for message in reversed(request.messages)]
    if note is not None:
        for line in resolver.left_out:
            note(line)
    if resolver.left_out:
        _log.info("attachments.left_out", model=request.model, count=len(resolver.left_out), first=resolver.left_out[0])
    return replace(request, messages=messages[::-1])


def _has_attachments(message: Message) -> bool:
    if message.role == "tool":
        return bool(message.attachments)
    is_plain = isinstance(message.content, str) or all(isinstance(part, TextPart) for part in message.content)
    return not is_plain or bool(message.context_files)


class _Resolver:
    """Works through one request; `left_out` says what the model does not get to see, and why."""

    def __init__(self, info: ModelInfo | None, fetch: Fetch) -> None:
        self._takes_images = info is None or info.supports_images
        self._takes_audio = info is None or info.supports_audio
        self._takes_files = info is None or info.supports_files
        self._fetch = fetch
        self._room_bytes = REQUEST_MAX_BYTES
        self.left_out: list[str] = []

    async def message(self, message: Message) -> Message:
        if not _has_attachments(message):
            return message
        if message.role == "tool":
            return await self._tool_message(message)
        content = message.content
        parts: Sequence[Part] = [TextPart(content)] if isinstance(content, str) else content
        shown = [await self._part(part) for part in parts]
        first = [TextPart(_labelled(_file_name(file), _file_text(file))) for file in message.context_files]
        return replace(message, content=[*first, *_attachments_first(parts, shown)])

    async def _tool_message(self, message: Message) -> Message:
        """Its images go along for a model that sees; the text already says that there are some (ATT-4)."""
        if not self._takes_images:
            return message
        said: list[Part] = [TextPart(message.content)] if isinstance(message.content, str) else list(message.content)
        urls = [item["url"] for item in message.attachments if item.get("type") == "image_url" and item.get("url")]
        images = [await self._image(ImagePart(ImageUrl(str(url)))) for url in urls]
        return replace(message, content=[*said, *images])

    async def _part(self, part: Part) -> Part:
        match part:
            case ImagePart():
                return await self._image(part)
            case AudioPart():
                return await self._audio(part)
            case FilePart():
                return await self._file(part)
            case _:
                return part

    async def _image(self, part: ImagePart) -> Part:
        if not self._takes_images:
            return self._leave_out("image", "this model takes no images")
        place = parse_blob_url(part.image_url.url)
        if place is None and not part.image_url.url.startswith("data:image/"):
            return self._leave_out("image", "it is no image of ours")
        if place is None:
            return part if self._takes(len(part.image_url.url) * 3 // 4) else self._too_much("image")
        blob = await self._fetch(place[1])
        if blob is None:
            return self._leave_out("image", "it is not there any more")
        if not self._takes(len(blob.data)):
            return self._too_much("image")
        url = await _in_thread(blob.data, lambda: data_url(blob.mime, blob.data))
        return ImagePart(ImageUrl(url, part.image_url.detail))

    async def _audio(self, part: AudioPart) -> Part:
        sound = part.input_audio
        if not self._takes_audio:
            return self._leave_out("audio", "this model takes no audio")
        if sound.blob is None:
            return part if self._takes(len(sound.data) * 3 // 4) else self._too_much("audio")
        blob = await self._fetch(sound.blob)
        if blob is None:
            return self._leave_out("audio", "it is not there any more")
        if not self._takes(len(blob.data)):
            return self._too_much("audio")
        return AudioPart(InputAudio(await _in_thread(blob.data, lambda: encode_base64(blob.data)), sound.format))

    async def _file(self, part: FilePart) -> Part:
        name = f"file {part.name}"
        if part.text is not None:
            return TextPart(_labelled(part.name, part.text))
        is_text = part.text_blob is not None or _is_text_like(part)
        if not is_text and not self._takes_files:
            return self._leave_out(name, "this model takes no files of this kind")
        hash = part.text_blob or part.blob
        blob = await self._fetch(hash) if hash is not None else None
        if hash is not None and blob is None:
            return self._leave_out(name, "it is not there any more")
        data = blob.data if blob is not None else decode_base64(part.data or "")
        if is_text and (text := _text_in(data)) is not None:
            return TextPart(_labelled(part.name, text))
        if not self._takes_files:
            return self._leave_out(name, "this model takes no files of this kind")
        if not self._takes(len(data)):
            return self._too_much(name)
        return FilePart(part.name, part.mime, data=await _in_thread(data, lambda: encode_base64(data)))

    def _takes(self, size_bytes: int) -> bool:
        if size_bytes > self._room_bytes:
            return False
        self._room_bytes -= size_bytes
        return True

    def _too_much(self, what: str) -> TextPart:
        return self._leave_out(what, "newer attachments fill the request")

    def _leave_out(self, what: str, why: str) -> TextPart:
        self.left_out.append(f"{what}: {why}")
        return TextPart(f"[{what} left out: {why}]")


def _attachments_first(parts: Sequence[Part], shown: Sequence[Part]) -> list[Part]:
    """Attachments, then the user's words (ATT-2). Who writes between attachments keeps the order that was meant."""
    is_text = [isinstance(part, TextPart) for part in parts]
    changes = sum(before != after for before, after in pairwise(is_text))
    if changes > 1:
        return list(shown)
    pairs = list(zip(is_text, shown, strict=True))
    return [*(part for text, part in pairs if not text), *(part for text, part in pairs if text)]


def _labelled(name: str, text: str) -> str:
    return f"File {name}:\n{cut_text(text, TEXT_MAX_BYTES)}"


def cut_text(text: str, max_bytes: int) -> str:
    """`text`, or as much of it as `max_bytes` of UTF-8 hold together with a note that says so."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= max_bytes:
        return text
    note = f"\n[cut: {len(encoded)} bytes in all]"
    return encoded[: max_bytes - len(note)].decode(errors="ignore") + note


def _file_name(file: JsonObject) -> str:
    """A context file's name on one line, with its lines when they are told (PROTOCOL §2)."""
    told = next((value for key in ("file_name", "path", "name") if isinstance(value := file.get(key), str)), "")
    name = " ".join(told.split()) or "unnamed"
    first, last = file.get("line1"), file.get("line2")
    return f"{name} (lines {first}-{last})" if isinstance(first, int) and isinstance(last, int) and last else name


def _file_text(file: JsonObject) -> str:
    return str(file.get("file_content", file.get("content", "")))


def _is_text_like(part: FilePart) -> bool:
    mime = part.mime.partition(";")[0].strip().lower()
    if mime.startswith("text/") or mime.endswith(("+json", "+xml", "+yaml")) or mime in _TEXT_MIMES:
        return True
    return mime in _UNTOLD_MIMES and part.name.rpartition(".")[2].lower() in _TEXT_SUFFIXES


def _text_in(data: bytes) -> str | None:
    """The text, if it is one: UTF-8 without NUL."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


async def _in_thread(data: bytes, encode: Callable[[], str]) -> str:
    return encode() if len(data) < THREAD_MIN_BYTES else await anyio.to_thread.run_sync(encode)
