"""Prepares a tool's result for the log and the model: separates images, and cuts long text.

The agent loop calls `keep_result` after a tool has ended and before the entry is appended. `keep_result` stores images,
and the full text of a cut result, by calling `put`. A failure of `put` is noted in the text and never raised, because
the tool has run and its result must be in the log. Most results are short text, which needs almost no work.
"""

import re
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from threadcast_protocol.wire.blobs import Blob, BlobCollector, blob_url, data_url, decode_base64, image_mime
from threadcast_protocol.wire.content import BINARY_MAX_BYTES, MAX_IMAGES
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["LOGGED_RESULT_MAX_BYTES", "KeptResult", "Put", "cut_text", "is_whole", "keep_result", "take_images"]

Put = Callable[[Blob], Awaitable[bool]]
"""A function that stores a blob of the chat. Returns False if the blob could not be stored."""

LOGGED_RESULT_MAX_BYTES = 256_000
"""The maximum bytes of a result's text (PROTOCOL §18). A longer text is cut, with a note for the model."""

_IMAGE_LINE = re.compile(r"data:image/(?:png|jpeg|jpg|webp|gif);base64,")
_LAST_NOTE = re.compile(r"\n\[(?:cut: \d+ bytes in all|image \d+ could not be kept)\]\Z")


class KeptResult(msgspec.Struct, frozen=True):
    """The content of a tool message, and its `attachments`: `{type, mime, bytes, url, name?}` (PROTOCOL §8)."""

    content: str
    attachments: list[JsonObject] = []


async def keep_result(content: str, tool_name: str, chat_id: str, put: Put) -> KeptResult:
    """Return the content of the tool message for a result `content`, with large parts stored as blobs."""
    text, images = take_images(content)
    collector = BlobCollector(chat_id)
    attachments = [await _image(collector, number, image, put) for number, image in enumerate(images, 1)]
    lost = "".join(f"\n[image {n} could not be kept]" for n, kept in enumerate(attachments, 1) if kept is None)
    kept = [each for each in attachments if each is not None]
    if (
        len(text) * 4 > LOGGED_RESULT_MAX_BYTES
        and len(whole := text.encode(errors="replace")) > LOGGED_RESULT_MAX_BYTES
    ):
        hash = collector.put(whole, "text/plain")
        if await put(collector.blobs[hash]):
            name = f"{tool_name}.txt"
            described = {"type": "file", "name": name, "mime": "text/plain", "bytes": len(whole)}
            kept.append({**described, "url": blob_url(chat_id, hash)})
    return KeptResult(cut_text(text, LOGGED_RESULT_MAX_BYTES - len(lost)) + lost, kept)


def is_whole(content: str, attachments: Sequence[JsonObject]) -> bool:
    """Return whether a tool message has the tool's whole result. The text must not be cut, and no image may have been
    moved to the attachments. The text counts as cut if it ends with the
    note that `keep_result` adds, even if the tool itself wrote that note."""
    return not attachments and _LAST_NOTE.search(content) is None


async def _image(collector: BlobCollector, number: int, image: bytes, put: Put) -> JsonObject | None:
    mime = image_mime(image) or ""
    described: JsonObject = {"type": "image_url", "name": f"image {number}", "mime": mime, "bytes": len(image)}
    if not collector.wants(len(image) * 4 // 3):
        return {**described, "url": data_url(mime, image)}
    hash = collector.put(image, mime)
    return {**described, "url": blob_url(collector.chat_id, hash)} if await put(collector.blobs[hash]) else None


def take_images(text: str) -> tuple[str, list[bytes]]:
    """Return `text` with a placeholder for each line that is the data URL of an image, and the list of these images. A
    line stays in the text if it is not a PNG, JPEG, WebP or GIF image, if the image is too large, or if there are
    already MAX_IMAGES images."""
    if "data:image/" not in text:
        return text, []
    lines, images = text.split("\n"), list[bytes]()
    for at, line in enumerate(lines):
        image = _image_in(line.strip()) if len(images) < MAX_IMAGES else None
        if image is not None:
            images.append(image)
            lines[at] = f"[image {len(images)}: {image_mime(image)}, {len(image)} bytes]"
    return "\n".join(lines), images


def _image_in(line: str) -> bytes | None:
    prefix = _IMAGE_LINE.match(line)
    if prefix is None or (len(line) - prefix.end()) * 3 // 4 > BINARY_MAX_BYTES:
        return None
    try:
        image = decode_base64(line[prefix.end() :])
    except ValueError:
        return None
    return image if image_mime(image) else None


def cut_text(text: str, max_bytes: int) -> str:
    """Return `text`, cut to `max_bytes` of UTF-8 if it is longer. The cut text ends in a note with the original
    size."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= max_bytes:
        return text
    note = f"\n[cut: {len(encoded)} bytes in all]"
    return encoded[: max_bytes - len(note)].decode(errors="ignore") + note
