"""Large parts beside the log: how they are named, what is large, and how bytes and names change places (PROTOCOL §10).

A blob is named by the SHA-256 of its bytes and lies once per chat; inbox, log and events carry its name alone. Pure:
where the bytes lie is the store's business, which types of files there are `content.py`'s. Used by the web process
before a command is laid down, by the writer to find what an entry refers to, and by everybody who needs the bytes back.
The one rule: a name that stands in an entry is found by `blob_hashes`, whatever event or fact it stands in.
"""

import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from protocol.messages import AudioPart, FilePart, ImagePart, InputAudio, JsonObject, Part

__all__ = [
    "BLOBS_MAX_COUNT",
    "BLOBS_TOTAL_MAX_BYTES",
    "BLOB_MAX_BYTES",
    "BLOB_TTL_SECONDS",
    "INLINE_MAX_BYTES",
    "LARGE_PART_BYTES",
    "Blob",
    "BlobFacts",
    "Reference",
    "Shelf",
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
    "with_facts",
]

LARGE_PART_BYTES = 32 * 1024
"""A part whose payload, as it came, is longer lies beside the log (PROTOCOL §10)."""

INLINE_MAX_BYTES = 256 * 1024
"""What all small parts of one message may add to the log; beyond it small ones become blobs too."""

BLOB_MAX_BYTES = 16 * 1024 * 1024
"""One blob, decoded; what one body may bring."""

BLOBS_MAX_COUNT = 1_000
BLOBS_TOTAL_MAX_BYTES = 256 * 1024 * 1024
"""Of one chat. Its owner's memory in the store is worth about twenty of the largest images."""

BLOB_TTL_SECONDS = 24 * 3_600
"""What is laid down and never referred to goes after a day."""

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
"""A multiple of 4. The interpreter's lock is held for as long as one call decodes, a third of a millisecond."""


class Blob(msgspec.Struct, frozen=True):
    """`hash` is the SHA-256 of `data` in lower-case hex; `mime` what it was said to be, for images what it is."""

    hash: str
    mime: str
    data: bytes


class BlobFacts(msgspec.Struct, frozen=True):
    """What is known of a blob without reading it."""

    mime: str
    size_bytes: int


class Reference(msgspec.Struct, frozen=True):
    """A part that came as the name of a blob. `is_text`: it stands for a file's text."""

    hash: str
    path: str
    is_image: bool = False
    is_text: bool = False


class Shelf:
    """Where one command's large parts are put while it is read, and what it refers to besides."""

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.blobs: dict[str, Blob] = {}
        self.references: list[Reference] = []
        self._inline_bytes = 0

    def wants(self, payload_bytes: int) -> bool:
        """Whether a payload of that length is too large to stay where it is."""
        if payload_bytes <= LARGE_PART_BYTES and self._inline_bytes + payload_bytes <= INLINE_MAX_BYTES:
            self._inline_bytes += payload_bytes
            return False
        return True

    def put(self, data: bytes, mime: str) -> str:
        """The hash under which `data` now lies here. What is no mime type (RFC 6838 §4.2) counts as bytes."""
        known = image_mime(data) or (mime if _MIME.fullmatch(mime) else "application/octet-stream")
        blob = Blob(hashlib.sha256(data).hexdigest(), known, data)
        self.blobs.setdefault(blob.hash, blob)
        return blob.hash


def blob_url(chat_id: str, hash: str) -> str:
    """The reference that stands in `image_url.url`, and where a client gets the bytes: relative to the server."""
    return f"/v1/chats/{chat_id}/blobs/{hash}"


def parse_blob_url(url: str) -> tuple[str, str] | None:
    """Chat id and hash of a reference, or None."""
    found = _BLOB_URL.fullmatch(url)
    return (found[1], found[2]) if found else None


def image_mime(data: bytes) -> str | None:
    """The mime type of one of the four formats that we take, by its first bytes; None for anything else."""
    return next((mime for header, mime in _IMAGE_HEADERS if header.match(data)), None)


def decode_base64(encoded: str) -> bytes:
    """The bytes of canonical base64, decoded in steps so that other threads get their turn in between.

    Raises:
        ValueError: anything else.
    """
    pieces: list[bytes] = []
    for start in range(0, len(encoded), _BASE64_AT_ONCE):
        if pieces and len(pieces[-1]) * 4 != _BASE64_AT_ONCE * 3:
            raise ValueError("padding in the middle")
        pieces.append(binascii.a2b_base64(encoded[start : start + _BASE64_AT_ONCE], strict_mode=True))
    return b"".join(pieces) if len(pieces) != 1 else pieces[0]


def data_url(mime: str, data: bytes) -> str:
    return f"data:{mime};base64,{encode_base64(data)}"


def encode_base64(data: bytes) -> str:
    """In steps, as `decode_base64`."""
    step = _BASE64_AT_ONCE * 3 // 4
    pieces = (data[start : start + step] for start in range(0, len(data), step))
    return "".join(binascii.b2a_base64(piece, newline=False).decode() for piece in pieces)


def blob_hashes(*pieces: bytes) -> tuple[str, ...]:
    """Every hash that encoded JSON refers to, each once, in order: in events, and in commands inside of facts.

    A text that merely looks like a reference counts as one, which costs nothing: it names a blob of this chat or none.
    """
    found: dict[str, None] = {}
    for piece in pieces:
        if b"blob" in piece:  # most entries have none, and a search costs a tenth of an expression
            found.update((hash.decode(), None) for hash in _HASHES.findall(piece))
    return tuple(found)


def with_facts(parts: Sequence[Part], held: Mapping[str, BlobFacts]) -> list[Part]:
    """The parts, each reference with the type and size of what it names, whatever the client had said of it."""
    return [_with_facts(part, held) for part in parts]


def _with_facts(part: Part, held: Mapping[str, BlobFacts]) -> Part:
    match part:
        case ImagePart():
            place = parse_blob_url(part.image_url.url)
            if place is not None and (facts := held.get(place[1])):
                return ImagePart(replace(part.image_url, mime=facts.mime, bytes=facts.size_bytes))
        case AudioPart(input_audio=InputAudio(blob=str() as hash)) if facts := held.get(hash):
            return AudioPart(replace(part.input_audio, bytes=facts.size_bytes))
        case FilePart() if facts := held.get(part.blob or part.text_blob or ""):
            return replace(part, bytes=facts.size_bytes)
    return part


def put_inline(raw: bytes, blobs: Mapping[str, Blob]) -> bytes:
    """JSON with its references replaced by what they stand for; those that `blobs` does not hold stay."""
    return msgspec.json.encode(_inline(msgspec.json.decode(raw), blobs))


def _inline(value: object, blobs: Mapping[str, Blob]) -> object:
    if isinstance(value, list):
        return [_inline(item, blobs) for item in value]
    if not isinstance(value, dict):
        return value
    shown = {key: _inline(item, blobs) for key, item in value.items()}
    if isinstance(url := shown.get("url"), str) and (place := parse_blob_url(url)) and place[1] in blobs:
        blob = blobs[place[1]]
        shown["url"] = data_url(blob.mime, blob.data)
    if isinstance(hash := shown.get("blob"), str) and hash in blobs:
        del shown["blob"]
        shown["data"] = encode_base64(blobs[hash].data)
    if isinstance(hash := shown.get("text_blob"), str) and hash in blobs:
        del shown["text_blob"]
        shown["text"] = blobs[hash].data.decode(errors="replace")
    return shown


def move_to(chat_id: str, raw: bytes) -> bytes:
    """JSON with every reference leading to `chat_id`: for messages that were copied with their blobs."""
    return re.sub(rb"/v1/chats/[A-Za-z0-9_-]{1,128}/blobs/(?=[0-9a-f]{64})", blob_url(chat_id, "").encode(), raw)


def attachments_of(content: str | list[Part], chat_id: str) -> list[JsonObject]:
    """What a message lists for people beside its text: `{type, mime, bytes, name?, url?}` for each part that is no text
    (PROTOCOL §8). Small parts have no `url`; their bytes are in the content."""
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
            return _with_place(listed, sound.blob, sound.bytes, _decoded_bytes(sound.data), chat_id)
        case FilePart():
            listed = {"type": "file", "name": part.name, "mime": part.mime}
            own = _decoded_bytes(part.data) if part.data else len((part.text or "").encode())
            return _with_place(listed, part.blob or part.text_blob, part.bytes, own, chat_id)
        case _:
            return None


def _with_place(listed: JsonObject, hash: str | None, size: int | None, own_bytes: int, chat_id: str) -> JsonObject:
    if hash is None:
        return {**listed, "bytes": own_bytes}
    return {**listed, **({} if size is None else {"bytes": size}), "url": blob_url(chat_id, hash)}


def _decoded_bytes(encoded: str) -> int:
    return len(encoded) * 3 // 4 - encoded.count("=", -2)
