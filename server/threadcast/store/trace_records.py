"""Reads and writes the stored form of trace records: lines of JSON, packed together (`packing.py`), with bounds on
their packed and unpacked size.

The records of short runs share one stored record, because most of their text is the same. The traces of 50 short
exchanges take 3.4 kB instead of 49 kB.
"""

from collections.abc import Sequence

import msgspec

from threadcast.store.compression import FIRST_BYTES, decompressed, decompressed_size
from threadcast.store.packing import Packed
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["RECORD_MAX_BYTES", "RECORD_TEXT_MAX_BYTES", "combined", "compose", "decompose"]

_records: msgspec.json.Decoder[JsonObject] = decoder(JsonObject)

RECORD_MAX_BYTES = 64 * 1_024
"""Maximum bytes of a packed record. A record of this size contains about 250 kB of JSON, which is a request that fills
a window of 60,000 tokens. If a record is larger, its middle is removed."""

RECORD_TEXT_MAX_BYTES = 8 * 1_024 * 1_024
"""Maximum bytes of a record's JSON when it is unpacked. The bound limits the memory for a record, since redundant
text compresses a hundredfold."""

COMBINED_MAX_BYTES, COMBINED_TEXT_MAX_BYTES = 8 * 1_024, 128 * 1_024
"""Records are combined up to these sizes, packed and unpacked, so that adding a record takes at most 0.5 ms."""


def compose(text: bytes) -> bytes:
    """Return the stored form of a line of JSON. Raises ValueError when the line contains control characters, so it is
    not JSON."""
    return Packed().plus(text).encode()


def decompose(data: bytes) -> list[JsonObject]:
    """Return the records in a stored record.

    Raises:
        ValueError: `data` is not a stored record.
    """
    try:
        lines = _read(data).text().split(b"\n")  # JSON has no raw line breaks
        return [_records.decode(line) for line in lines]
    except (ValueError, msgspec.DecodeError, RecursionError) as wrong:
        raise ValueError(f"a stored trace cannot be read: {wrong}") from None


def combined(stored: Sequence[bytes]) -> bytes | None:
    """Return one stored record with the records of all `stored`; None if the result would be too large, or a record
    cannot be read."""
    if sum(map(len, stored)) > 2 * COMBINED_MAX_BYTES:
        return None
    try:
        if sum(map(_size_of, stored)) > COMBINED_TEXT_MAX_BYTES:
            return None
        whole, *others = map(_read, stored)
        data = whole.plus(b"".join(b"\n" + each.text() for each in others)).encode()
    except ValueError:
        return None
    return data if len(data) <= COMBINED_MAX_BYTES else None


def _read(stored: bytes) -> Packed:
    """Read a stored record, also of an older version, which compressed records without packing them. Raises ValueError
    when the record cannot be read, or is too large."""
    if stored.startswith(FIRST_BYTES):
        return Packed().plus(decompressed(stored, RECORD_TEXT_MAX_BYTES))
    return Packed.decode(stored, RECORD_TEXT_MAX_BYTES)


def _size_of(stored: bytes) -> int:
    return decompressed_size(stored) if stored.startswith(FIRST_BYTES) else Packed.size_of(stored)
