"""Checks the content of messages, and refuses invalid content with an error message (PROTOCOL §10).

`commands.py` does not decode `content` and `attachments`. `read_content` converts them into a string or typed parts, or
refuses them with a sentence and a JSON Pointer. The web process calls it before it accepts a command, with bodies of up
to 16 MiB, so an image is counted and measured before it is decoded, and decoded only once. Large parts are added to a
`BlobCollector` and replaced by references. Nothing is stored or fetched: every URL other than a data URL or the URL of
a blob is refused. Accepted content can be shown to every client and sent to every provider without a further check.
"""

import re
import string
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from threadcast_protocol.wire.blobs import BlobCollector, Reference, blob_url, decode_base64, image_mime, parse_blob_url
from threadcast_protocol.wire.errors import InvalidContent, TooLarge
from threadcast_protocol.wire.messages import (
    AudioPart,
    FilePart,
    ImagePart,
    ImageUrl,
    InputAudio,
    JsonObject,
    Part,
    TextPart,
)

__all__ = [
    "BINARY_MAX_BYTES",
    "CONTEXT_FILES_MAX_CHARACTERS",
    "CONTEXT_FILES_MAX_COUNT",
    "CONTEXT_FILE_NOTES_MAX_BYTES",
    "IMAGE_MIME_PATTERN",
    "LABEL_MAX_CHARACTERS",
    "LABEL_PATTERN",
    "MAX_IMAGES",
    "MESSAGE_TEXT_MAX_BYTES",
    "PARTS_MAX_COUNT",
    "check_text",
    "edited",
    "read_content",
    "read_context_files",
]

MESSAGE_TEXT_MAX_BYTES = 256 * 1024
"""The maximum UTF-8 bytes of all text of one message, or of one result of a client tool (PROTOCOL §1)."""

BINARY_MAX_BYTES = 12_000_000
"""The maximum decoded bytes of an image, a sound or a file (PROTOCOL §10). In base64 this size just fits a body of 16
MiB."""

MAX_IMAGES = 20
"""The default maximum of images in one message, attachments included (PROTOCOL §10)."""

PARTS_MAX_COUNT = 1_000
"""The maximum number of parts. A body of 16 MiB could contain half a million empty parts; no person writes a
thousand."""

CONTEXT_FILES_MAX_COUNT = 5
CONTEXT_FILES_MAX_CHARACTERS = 50_000
CONTEXT_FILE_NOTES_MAX_BYTES = 4_096
"""The maximum bytes of a context file's other fields (name, lines, symbols) as JSON."""

LABEL_MAX_CHARACTERS = 255
"""The maximum length of file names, media types and formats: the limit for file names on common file systems."""

_Json: TypeAlias = Mapping[str, object]

IMAGE_MIME_PATTERN = r"image/(?:png|jpeg|jpg|webp|gif)"
LABEL_PATTERN = rf"[^\x00-\x1f\x7f]{{1,{LABEL_MAX_CHARACTERS}}}"
"""The pattern of a name: one line without control characters."""

_DATA_URL = re.compile(rf"data:{IMAGE_MIME_PATTERN};base64,")
_HASH = re.compile(r"[0-9a-f]{64}")
_BASE64_BYTES = string.ascii_letters.encode() + string.digits.encode() + b"+/="
_IMAGE_MIME = re.compile(IMAGE_MIME_PATTERN)
_LABEL = re.compile(LABEL_PATTERN)


def read_content(
    content: object,
    attachments: Sequence[JsonObject],
    *,
    max_images: int = MAX_IMAGES,
    collector: BlobCollector | None = None,
) -> str | list[Part]:
    """Check the content of a message and return it with its attachments appended. A string without attachments is
    returned as it is.

    Large parts and references are added to the `collector`; the caller then checks that the chat has the referenced
    blobs. Without a `collector` all parts are returned unchanged, because they were checked when the command was
    accepted.

    Raises:
        InvalidContent: the content is invalid by PROTOCOL §10; `path` points at the place.
        TooLarge: the text has more than MESSAGE_TEXT_MAX_BYTES.
    """
    if isinstance(content, str):
        if not attachments:
            if not content.strip():
                raise InvalidContent("content is empty", path="/content")
            return check_text(content, "/content")
        items: Sequence[object] = [TextPart(content)] if content.strip() else []
    elif isinstance(content, Sequence) and not isinstance(content, (bytes, bytearray)):
        items = content
    else:
        raise InvalidContent("content must be a string or a list of parts", path="/content")
    if len(items) + len(attachments) > PARTS_MAX_COUNT:
        raise InvalidContent(f"content must have at most {PARTS_MAX_COUNT} parts", path="/content")
    reader = _Reader(max_images, collector)
    parts = [reader.part(item, f"/content/{i}") for i, item in enumerate(items)]
    parts += [reader.attachment(item, f"/attachments/{i}") for i, item in enumerate(attachments)]
    if all(isinstance(part, TextPart) and not part.text.strip() for part in parts):
        raise InvalidContent("content is empty", path="/content")
    return parts


def edited(now: object, content: object, attachments: Sequence[JsonObject] | None) -> tuple[object, list[JsonObject]]:
    """Return the content and attachments of a message after an edit, as arguments for `read_content`. `now` is the
    content before the edit. None means that the edit leaves the field unchanged. A string replaces the text,
    `attachments` replace the attachments, and a list of parts replaces both."""
    if isinstance(content, Sequence) and not isinstance(content, str):
        return content, list(attachments or [])
    parts: list[JsonObject] = [] if isinstance(now, str) else msgspec.to_builtins(now)
    words = [str(part["text"]) for part in parts if part.get("type") == "text"]
    if content is None:
        content = now if isinstance(now, str) else words[0] if len(words) == 1 else [TextPart(text) for text in words]
    kept = [part for part in parts if part.get("type") != "text"] if attachments is None else attachments
    return content, list(kept)


class _Reader:
    """Reads the parts of one message, and counts the images and the text of all parts together."""

    def __init__(self, max_images: int, collector: BlobCollector | None) -> None:
        self._max_images = max_images
        self._collector = collector
        self._images_count = 0
        self._text_bytes = 0

    def attachment(self, item: object, path: str) -> Part:
        """Read an attachment: a part, or an image without a type."""
        if isinstance(item, Mapping) and "image_url" in item and "type" not in item:
            return self._image(item, path)
        return self.part(item, path)

    def part(self, item: object, path: str) -> Part:
        """Read a part of the content."""
        if isinstance(item, TextPart):
            return self._text(item.text, path)
        if not isinstance(item, Mapping):
            raise InvalidContent("a content part must be an object with a type", path=path)
        if "m_type" in item and "type" not in item:
            return self._foreign(item, path)
        match item.get("type"):
            case "text":
                return self._text(_string(item, "text", path), f"{path}/text")
            case "image_url":
                return self._image(item, path)
            case "input_audio":
                return self._audio(item, path)
            case "file":
                return self._file(item, path)
            case str():
                raise InvalidContent(
                    "unknown type of content part; known are text, image_url, input_audio, file", path=f"{path}/type"
                )
        raise InvalidContent("a content part must have a type", path=path)

    def _text(self, text: str, path: str) -> TextPart:
        self._count_text(text, path)
        return TextPart(text)

    def _count_text(self, text: str, path: str) -> None:
        self._text_bytes += _utf8_length(text)
        if self._text_bytes > MESSAGE_TEXT_MAX_BYTES:
            raise TooLarge(f"the text of a message must be at most {MESSAGE_TEXT_MAX_BYTES} bytes", path=path)

    def _image(self, item: _Json, path: str) -> ImagePart:
        inner = item.get("image_url")
        if not isinstance(inner, Mapping) or not isinstance(inner.get("url"), str):
            raise InvalidContent("an image part must have image_url.url", path=f"{path}/image_url")
        detail = inner.get("detail")
        if detail is not None and not isinstance(detail, str):
            raise InvalidContent("the detail of an image must be a string", path=f"{path}/image_url/detail")
        return self._image_from(inner["url"], detail, f"{path}/image_url/url", inner)

    def _image_from(self, url: str, detail: str | None, path: str, known: _Json | None = None) -> ImagePart:
        self._images_count += 1
        if self._images_count > self._max_images:
            raise InvalidContent(f"a message must have at most {self._max_images} images", path=path)
        named = parse_blob_url(url)
        if named is not None:
            self._refer(named[1], path, chat_id=named[0], is_image=True)
            return ImagePart(ImageUrl(url, detail, _told_mime(known), _told_bytes(known)))
        image, mime = _check_image(url, path)
        if self._collector is None or not self._collector.wants(len(url)):
            return ImagePart(ImageUrl(url, detail))
        hash = self._collector.put(image, mime)
        return ImagePart(ImageUrl(blob_url(self._collector.chat_id, hash), detail, mime, len(image)))

    def _audio(self, item: _Json, path: str) -> AudioPart:
        inner = item.get("input_audio")
        path = f"{path}/input_audio"
        if not isinstance(inner, Mapping):
            raise InvalidContent("an audio part must have input_audio", path=path)
        for key in ("data", "blob"):
            if inner.get(key) is not None:
                _string(inner, key, path)
        if inner.get("blob") is not None and not inner.get("data"):
            hash = self._refer(_string(inner, "blob", path), f"{path}/blob")
            return AudioPart(InputAudio(format=_label(inner, "format", path), blob=hash, bytes=_told_bytes(inner)))
        data = _string(inner, "data", path)
        sound = _decode(data, "audio", f"{path}/data")
        format = _label(inner, "format", path)
        if self._collector is None or not self._collector.wants(len(data)):
            return AudioPart(InputAudio(data, format))
        return AudioPart(
            InputAudio(format=format, blob=self._collector.put(sound, f"audio/{format}"), bytes=len(sound))
        )

    def _file(self, item: _Json, path: str) -> FilePart:
        name, mime = _label(item, "name", path), _label(item, "mime", path)
        ways = [key for key in ("data", "text", "blob", "text_blob") if item.get(key) is not None]
        if len(ways) != 1:
            raise InvalidContent("a file part must have either data or text, or one of blob, text_blob", path=path)
        way = ways[0]
        value = _string(item, way, path)
        match way:
            case "text":
                self._count_text(value, f"{path}/text")
                if self._collector is None or not self._collector.wants(len(value)):
                    return FilePart(name, mime, text=value)
                encoded = value.encode("utf-8", "replace")
                return FilePart(name, mime, text_blob=self._collector.put(encoded, "text/plain"), bytes=len(encoded))
            case "data":
                data = _decode(value, "file", f"{path}/data")
                if self._collector is None or not self._collector.wants(len(value)):
                    return FilePart(name, mime, data=value)
                return FilePart(name, mime, blob=self._collector.put(data, mime), bytes=len(data))
            case "blob":
                return FilePart(name, mime, blob=self._refer(value, f"{path}/blob"), bytes=_told_bytes(item))
        hash = self._refer(value, f"{path}/text_blob", is_text=True)
        return FilePart(name, mime, text_blob=hash, bytes=_told_bytes(item))

    def _refer(
        self, hash: str, path: str, *, chat_id: str | None = None, is_image: bool = False, is_text: bool = False
    ) -> str:
        if not _HASH.fullmatch(hash):
            raise InvalidContent("blob must be a SHA-256 in lower-case hex, as the upload returned", path=path)
        if self._collector is not None:
            if chat_id not in (None, self._collector.chat_id):
                raise InvalidContent(
                    "Invalid image URL: it is a blob of another chat; upload it to this one", path=path
                )
            self._collector.references.append(Reference(hash, path, is_image, is_text))
        return hash

    def _foreign(self, item: _Json, path: str) -> Part:
        """Read a part of the form `{m_type, m_content}`: text, or an image's media type and base64."""
        kind, value = item["m_type"], _string(item, "m_content", path)
        if kind == "text":
            return self._text(value, f"{path}/m_content")
        if isinstance(kind, str) and _IMAGE_MIME.fullmatch(kind):
            return self._image_from(f"data:{kind};base64,{value}", None, f"{path}/m_content")
        raise InvalidContent("unknown type of content part; known are text and image/…", path=f"{path}/m_type")


def _string(item: _Json, key: str, path: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise InvalidContent(f"{key} must be a string", path=f"{path}/{key}")
    return value


def _label(item: _Json, key: str, path: str) -> str:
    value = _string(item, key, path)
    if not _LABEL.fullmatch(value):
        raise InvalidContent(f"{key} must be 1 to {LABEL_MAX_CHARACTERS} characters on one line", path=f"{path}/{key}")
    return value


def _told_mime(known: _Json | None) -> str | None:
    mime = None if known is None else known.get("mime")
    return mime if isinstance(mime, str) and _IMAGE_MIME.fullmatch(mime) else None


def _told_bytes(known: _Json | None) -> int | None:
    """Return the size in a reference, if the client has given one. The server later replaces this size by the true
    size."""
    size = None if known is None else known.get("bytes")
    return size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None


def _check_image(url: str, path: str) -> tuple[bytes, str]:
    """Decode a data URL; return the image and its detected media type."""
    prefix = _DATA_URL.match(url)
    if prefix is None:
        raise InvalidContent(
            "Invalid image URL: it must be a base64 data URL of png, jpeg, webp or gif, or the URL of a blob", path=path
        )
    # Slicing copies up to 16 MB once. Decoding then refuses every character outside of the base64 alphabet, so the rest
    # of the URL needs a check only if decoding fails.
    encoded = url[prefix.end() :]
    try:
        image = _decode(encoded, "image", path)
    except InvalidContent:
        # `translate` checks 16 MB ten times as fast as a regular expression, so that invalid URLs do not slow the
        # server down.
        if not encoded.isascii() or encoded.encode().translate(None, delete=_BASE64_BYTES):
            raise InvalidContent("Invalid image URL: the part after the comma is not only base64", path=path) from None
        raise
    mime = image_mime(image)
    if mime is None:
        raise InvalidContent("Invalid image: it is neither png, jpeg, webp nor gif", path=path)
    return image, mime


def _decode(encoded: str, what: str, path: str) -> bytes:
    if len(encoded) * 3 // 4 - encoded.count("=", -2) > BINARY_MAX_BYTES:
        raise InvalidContent(f"Invalid {what}: larger than {BINARY_MAX_BYTES} bytes", path=path)
    try:
        decoded = decode_base64(encoded)
    except ValueError:  # binascii.Error is a ValueError; non-ASCII characters raise a plain ValueError
        raise InvalidContent(f"Invalid {what}: broken base64", path=path) from None
    if not decoded:
        raise InvalidContent(f"Invalid {what}: empty", path=path)
    return decoded


def _utf8_length(text: str) -> int:
    # A text with too many characters is too long in any case, and need not be encoded.
    return len(text) if text.isascii() or len(text) > MESSAGE_TEXT_MAX_BYTES else len(text.encode("utf-8", "replace"))


def check_text(text: str, path: str) -> str:
    """Return `text` if its length is allowed for the text of a message.

    Raises:
        TooLarge: the text has more than MESSAGE_TEXT_MAX_BYTES.
    """
    if _utf8_length(text) > MESSAGE_TEXT_MAX_BYTES:
        raise TooLarge(f"text must be at most {MESSAGE_TEXT_MAX_BYTES} bytes", path=path)
    return text


def read_context_files(context_files: Sequence[JsonObject]) -> list[JsonObject]:
    """Check context files and return them unchanged. Each file must have its text in `file_content` or `content`.

    Raises:
        InvalidContent: there are too many files, their total text is too long, or a file has no text.
    """
    if len(context_files) > CONTEXT_FILES_MAX_COUNT:
        raise InvalidContent(f"at most {CONTEXT_FILES_MAX_COUNT} context_files are accepted", path="/context_files")
    characters = 0
    for i, file in enumerate(context_files):
        key = "file_content" if "file_content" in file else "content"
        characters += len(_string(file, key, f"/context_files/{i}"))
        if characters > CONTEXT_FILES_MAX_CHARACTERS:
            raise InvalidContent(
                f"context_files must have at most {CONTEXT_FILES_MAX_CHARACTERS} characters in all",
                path=f"/context_files/{i}/{key}",
            )
        notes = {name: value for name, value in file.items() if name != key}
        if len(msgspec.json.encode(notes)) > CONTEXT_FILE_NOTES_MAX_BYTES:
            raise InvalidContent(
                f"a context file may have {CONTEXT_FILE_NOTES_MAX_BYTES} bytes besides its text",
                path=f"/context_files/{i}",
            )
    return list(context_files)
