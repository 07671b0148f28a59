"""Blobs: large parts of messages that are stored beside the log, and references to them (PROTOCOL §10).

A blob is identified by the SHA-256 of its bytes and stored once per chat; inbox, log and events contain only this hash.
The web process replaces large parts by references before it posts a command. The writer finds the references of an
entry with `blob_hashes`. All functions are pure: the store keeps the bytes.
"""

import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from threadcast_protocol.wire.decoders import decode_any
from threadcast_protocol.wire.messages import AudioPart, FilePart, ImagePart, InputAudio, JsonObject, Part

__all__ = [
    "BLOBS_MAX_COUNT",
    "BLOBS_TOTAL_MAX_BYTES",
    "BLOB_MAX_BYTES",
    "BLOB_TTL_SECONDS",
    "INLINE_MAX_BYTES",
    "LARGE_PART_BYTES",
    "PRIVATE_MIME",
    "Blob",
    "BlobCollector",
    "BlobFacts",
    "Reference",
    "attachments_of",
    "blob_hashes",
    "blob_url",
    "data_url",
    "decode_base64",
    "encode_base64",
    "image_mime",
    "move_to",
    "parse_blob_url",
    "put_inline",
    "true_mime",
    "with_facts",
]

LARGE_PART_BYTES = 32 * 1024
"""The maximum length of a part's text or base64 in the log. A longer part is stored as a blob (PROTOCOL §10)."""

INLINE_MAX_BYTES = 256 * 1024
"""The maximum bytes that all small parts of one message add to the log. Further small parts become blobs too."""

BLOB_MAX_BYTES = 16 * 1024 * 1024
"""The maximum decoded bytes of one blob, the same as of one request's body."""

BLOBS_MAX_COUNT = 1_000
BLOBS_TOTAL_MAX_BYTES = 256 * 1024 * 1024
"""The maximum number and total bytes of the blobs of one chat: about twenty of the largest images."""

BLOB_TTL_SECONDS = 24 * 3_600
"""A blob without any reference is deleted after a day."""

PRIVATE_MIME = "application/x-threadcast-private"
"""The type of blobs that only the server reads, such as large results of a durable agent's steps. No request, export
or message refers to such blobs."""

_BLOB_URL = re.compile(r"/v1/chats/([A-Za-z0-9_-]{1,128})/blobs/([0-9a-f]{64})")
_HASHES = re.compile(rb'(?:/blobs/|blob\\*": ?\\*")([0-9a-f]{64})(?![0-9a-f])')
_IMAGE_HEADERS = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
)
_MIME = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}")
_BASE64_AT_ONCE = 256 * 1024
"""Base64 characters that are decoded in one call, a multiple of 4. One call holds the interpreter's lock for a third of
a millisecond."""


class Blob(msgspec.Struct, frozen=True):
    """A blob. `hash` is the SHA-256 of `data` in lower-case hex. `mime` is the type that the client declared; for
    images it is the detected type."""

    hash: str
    mime: str
    data: bytes


class BlobFacts(msgspec.Struct, frozen=True):
    """The type and size of a stored blob."""

    mime: str
    size_bytes: int


class Reference(msgspec.Struct, frozen=True):
    """A reference to a blob in a received command, at the JSON Pointer `path`. `is_text` means that the blob is the
    text of a file."""

    hash: str
    path: str
    is_image: bool = False
    is_text: bool = False


class BlobCollector:
    """Collects the large parts of one command as blobs, and the command's references to blobs that are already
    stored."""

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.blobs: dict[str, Blob] = {}
        self.references: list[Reference] = []
        self._inline_bytes = 0

    def wants(self, payload_bytes: int) -> bool:
        """Return whether a payload of this length must become a blob. Otherwise the length of the payload counts
        towards INLINE_MAX_BYTES."""
        if payload_bytes <= LARGE_PART_BYTES and self._inline_bytes + payload_bytes <= INLINE_MAX_BYTES:
            self._inline_bytes += payload_bytes
            return False
        return True

    def put(self, data: bytes, mime: str) -> str:
        """Add a blob of the type `true_mime(data, mime)` and return its hash."""
        blob = Blob(hashlib.sha256(data).hexdigest(), true_mime(data, mime), data)
        self.blobs.setdefault(blob.hash, blob)
        return blob.hash


def true_mime(data: bytes, mime: str) -> str:
    """Return the type of a blob: for an image the detected type, otherwise the declared `mime`. A `mime` that is not a
    media type (RFC 6838 §4.2) becomes application/octet-stream, since the type is sent as a header."""
    return image_mime(data) or (mime if _MIME.fullmatch(mime) else "application/octet-stream")


def blob_url(chat_id: str, hash: str) -> str:
    """Return the URL of a blob, relative to the server. `image_url.url` contains this URL, and clients download the
    bytes from it."""
    return f"/v1/chats/{chat_id}/blobs/{hash}"


def parse_blob_url(url: str) -> tuple[str, str] | None:
    """Return the chat id and the hash in the URL of a blob, or None for any other URL."""
    found = _BLOB_URL.fullmatch(url)
    return (found[1], found[2]) if found else None


def image_mime(data: bytes) -> str | None:
    """Return the media type of an image (PNG, JPEG, GIF or WebP) by its first bytes, or None for other data."""
    return next((mime for header, mime in _IMAGE_HEADERS if header.match(data)), None)


def decode_base64(encoded: str) -> bytes:
    """Decode canonical base64, in steps between which other threads can run.

    Raises:
        ValueError: `encoded` is not canonical base64.
    """
    pieces: list[bytes] = []
    for start in range(0, len(encoded), _BASE64_AT_ONCE):
        if pieces and len(pieces[-1]) * 4 != _BASE64_AT_ONCE * 3:
            raise ValueError("padding in the middle")
        pieces.append(binascii.a2b_base64(encoded[start : start + _BASE64_AT_ONCE], strict_mode=True))
    return b"".join(pieces) if len(pieces) != 1 else pieces[0]


def data_url(mime: str, data: bytes) -> str:
    """Return a base64 data URL."""
    return f"data:{mime};base64,{encode_base64(data)}"


def encode_base64(data: bytes) -> str:
    """Encode as base64, in steps between which other threads can run."""
    step = _BASE64_AT_ONCE * 3 // 4
    pieces = (data[start : start + step] for start in range(0, len(data), step))
    return "".join(binascii.b2a_base64(piece, newline=False).decode() for piece in pieces)


def blob_hashes(*pieces: bytes) -> tuple[str, ...]:
    """Return the hashes of all blobs that these pieces of JSON refer to, each once, in order. References in commands
    inside of facts are found too.

    If a text only looks like a reference, the hash in it is returned too. Such a hash is harmless, because it belongs
    to a blob of this chat, or to no blob.
    """
    with_references = (piece for piece in pieces if b"blob" in piece)  # this check is ten times as fast as the search
    return tuple(dict.fromkeys(hash.decode() for piece in with_references for hash in _HASHES.findall(piece)))


def with_facts(parts: Sequence[Part], held: Mapping[str, BlobFacts]) -> list[Part]:
    """Return the parts with the true type and size in each reference, in place of the values from the client."""
    return [_with_facts(part, held) for part in parts]


def _with_facts(part: Part, held: Mapping[str, BlobFacts]) -> Part:
    match part:
        case ImagePart():
            named = parse_blob_url(part.image_url.url)
            if named is not None and (facts := held.get(named[1])):
                return ImagePart(replace(part.image_url, mime=facts.mime, bytes=facts.size_bytes))
        case AudioPart(input_audio=InputAudio(blob=str() as hash)) if facts := held.get(hash):
            return AudioPart(replace(part.input_audio, bytes=facts.size_bytes))
        case FilePart() if facts := held.get(part.blob or part.text_blob or ""):
            return replace(part, bytes=facts.size_bytes)
    return part


def put_inline(raw: bytes, blobs: Mapping[str, Blob]) -> bytes:
    """Return the JSON `raw` with the data of the blobs in place of references. References to blobs that are not in
    `blobs` stay unchanged."""
    return msgspec.json.encode(_inline(decode_any(raw), blobs))


def _inline(value: object, blobs: Mapping[str, Blob]) -> object:
    if isinstance(value, list):
        return [_inline(item, blobs) for item in value]
    if not isinstance(value, dict):
        return value
    shown = {key: _inline(item, blobs) for key, item in value.items()}
    if isinstance(url := shown.get("url"), str) and (named := parse_blob_url(url)) and named[1] in blobs:
        blob = blobs[named[1]]
        shown["url"] = data_url(blob.mime, blob.data)
    if isinstance(hash := shown.get("blob"), str) and hash in blobs:
        del shown["blob"]
        shown["data"] = encode_base64(blobs[hash].data)
    if isinstance(hash := shown.get("text_blob"), str) and hash in blobs:
        del shown["text_blob"]
        shown["text"] = blobs[hash].data.decode(errors="replace")
    return shown


def move_to(chat_id: str, raw: bytes) -> bytes:
    """Return the JSON `raw` with the chat id `chat_id` in all references, for messages that were copied with their
    blobs."""
    return re.sub(rb"/v1/chats/[A-Za-z0-9_-]{1,128}/blobs/(?=[0-9a-f]{64})", blob_url(chat_id, "").encode(), raw)


def attachments_of(content: str | list[Part], chat_id: str) -> list[JsonObject]:
    """Return the `attachments` of a message: `{type, mime, bytes, name?, url?}` for each part that is not text
    (PROTOCOL §8). Small parts have no `url`, because their bytes are in the content."""
    return [] if isinstance(content, str) else [listed for part in content if (listed := _listed(part, chat_id))]


def _listed(part: Part, chat_id: str) -> JsonObject | None:
    match part:
        case ImagePart():
            image = part.image_url
            if parse_blob_url(image.url):
                known = {"mime": image.mime, "bytes": image.bytes, "url": image.url}
                return {"type": "image_url", **{key: value for key, value in known.items() if value is not None}}
            mime, _, encoded = image.url.removeprefix("data:").partition(";base64,")
            return {"type": "image_url", "mime": mime, "bytes": _decoded_bytes(encoded)}
        case AudioPart():
            sound = part.input_audio
            listed: JsonObject = {"type": "input_audio", "mime": f"audio/{sound.format}"}
            return _with_url(listed, sound.blob, sound.bytes, _decoded_bytes(sound.data), chat_id)
        case FilePart():
            listed = {"type": "file", "name": part.name, "mime": part.mime}
            own = _decoded_bytes(part.data) if part.data else len((part.text or "").encode())
            return _with_url(listed, part.blob or part.text_blob, part.bytes, own, chat_id)
        case _:
            return None


def _with_url(listed: JsonObject, hash: str | None, size: int | None, own_bytes: int, chat_id: str) -> JsonObject:
    if hash is None:
        return {**listed, "bytes": own_bytes}
    return {**listed, **({} if size is None else {"bytes": size}), "url": blob_url(chat_id, hash)}


def _decoded_bytes(encoded: str) -> int:
    return len(encoded) * 3 // 4 - encoded.count("=", -2)
