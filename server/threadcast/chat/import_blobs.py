"""Checks the large blobs of an import without decoding them as a whole.

A blob's line has up to 22 MiB. Decoding the whole line would take the same amount of memory again and would block other
threads by the interpreter's lock. The hash is therefore computed slice by slice.
"""

import binascii
import hashlib
import re

import msgspec

from threadcast_protocol.wire.bodies import decode_body
from threadcast_protocol.wire.errors import BadRequest

__all__ = ["CheckedBlob", "begins_as_blob", "check_large_blob"]

SLICE_CHARACTERS = 262_144
"""The number of base64 characters that are decoded without interruption, which takes a millisecond. The number must be
a multiple of four."""

_BEGINS = re.compile(rb'\s*\{\s*"type"\s*:\s*"blob"')


class _BlobLine(msgspec.Struct, frozen=True, tag_field="type", tag="blob"):
    """A `BlobLine` whose data is not decoded. `Raw` refers to the bytes of the line and copies nothing."""

    hash: str
    mime: str
    data: msgspec.Raw


_lines = msgspec.json.Decoder(_BlobLine)


class CheckedBlob(msgspec.Struct, frozen=True):
    """A blob whose data has the hash that is given in its line."""

    hash: str


def begins_as_blob(line: bytes) -> bool:
    """Return whether a line of an import begins like the line of a blob in an export. The first bytes of the line are
    enough."""
    return _BEGINS.match(line) is not None


def check_large_blob(line: bytes) -> CheckedBlob:
    """Check the line of a large blob. Raises BadRequest if the line is not a blob, if its data is not base64 without
    escapes, or if the data has another hash."""
    blob = decode_body(_lines, line)
    data = memoryview(blob.data)
    digest = hashlib.sha256()
    try:
        if bytes(data[:1]) != b'"':
            raise binascii.Error
        for start in range(1, len(data) - 1, SLICE_CHARACTERS):
            end = min(start + SLICE_CHARACTERS, len(data) - 1)
            digest.update(binascii.a2b_base64(data[start:end], strict_mode=True))
    except binascii.Error:
        raise BadRequest("data must be base64, without escapes", path="/data") from None
    if digest.hexdigest() != blob.hash:
        raise BadRequest("hash is not the SHA-256 of data", path="/hash")
    return CheckedBlob(blob.hash)
