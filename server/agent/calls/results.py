"""A tool's result as the log and the model take it: images beside the text, long text cut and kept whole elsewhere.

The agent loop calls `keep_result` between a tool's end and the entry that tells of it. It knows no store: bytes go
out through `put`. What cannot be kept is said in the text, never raised: a tool has run, and its result must stand in
the log. Called for every result, so the plain one must cost nothing.
"""

import re
from collections.abc import Awaitable, Callable

import msgspec

from protocol.blobs import Blob, Shelf, blob_url, data_url, decode_base64, image_mime
from protocol.content import BINARY_MAX_BYTES, MAX_IMAGES
from protocol.messages import JsonObject
from server.agent.history.attachments import cut_text

__all__ = ["RESULT_MAX_BYTES", "KeptResult", "Put", "keep_result", "take_images"]

Put = Callable[[Blob], Awaitable[bool]]
"""Lay a blob beside the chat; False when it could not be."""

RESULT_MAX_BYTES = 256_000
"""PROTOCOL §18: of a result's text; longer ones are cut, with a note that says so to the model."""

_IMAGE_LINE = re.compile(r"data:image/(?:png|jpeg|jpg|webp|gif);base64,")


class KeptResult(msgspec.Struct, frozen=True):
    """`attachments` are the tool message's: `{type, mime, bytes, url, name?}` (PROTOCOL §8)."""

    content: str
    attachments: list[JsonObject] = []


async def keep_result(content: str, tool_name: str, chat_id: str, put: Put) -> KeptResult:
    """What stands in the tool message for a result `content`, its large parts laid beside the chat."""
    text, images = take_images(content)
    shelf = Shelf(chat_id)
    attachments = [await _image(shelf, number, image, put) for number, image in enumerate(images, 1)]
    lost = "".join(f"\n[image {n} could not be kept]" for n, kept in enumerate(attachments, 1) if kept is None)
    kept = [each for each in attachments if each is not None]
    if len(text) * 4 > RESULT_MAX_BYTES and len(whole := text.encode(errors="replace")) > RESULT_MAX_BYTES:
        hash = shelf.put(whole, "text/plain")
        if await put(shelf.blobs[hash]):
            name = f"{tool_name}.txt"
            described = {"type": "file", "name": name, "mime": "text/plain", "bytes": len(whole)}
            kept.append({**described, "url": blob_url(chat_id, hash)})
    return KeptResult(cut_text(text, RESULT_MAX_BYTES - len(lost)) + lost, kept)


async def _image(shelf: Shelf, number: int, image: bytes, put: Put) -> JsonObject | None:
    mime = image_mime(image) or ""
    described: JsonObject = {"type": "image_url", "name": f"image {number}", "mime": mime, "bytes": len(image)}
    if not shelf.wants(len(image) * 4 // 3):
        return {**described, "url": data_url(mime, image)}
    hash = shelf.put(image, mime)
    return {**described, "url": blob_url(shelf.chat_id, hash)} if await put(shelf.blobs[hash]) else None


def take_images(text: str) -> tuple[str, list[bytes]]:
    """`text` with a placeholder for each line that is an image's data URL, and the images. A line that is no image of
    the four formats after all, or one too many, stays what it is: text."""
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
