"""Reads and combines the stored form of trace records: lines of JSON, compressed together, with a bound on their
compressed and on their decompressed size.

The records of short runs share a stored record, because most of their text is the same: 50 short turns take 5 kB
instead of 49.
"""

from collections.abc import Sequence

import msgspec

from threadcast.store.compression import compressed, decompressed, decompressed_size
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["RECORD_MAX_BYTES", "RECORD_TEXT_MAX_BYTES", "combined", "decompose"]

RECORD_MAX_BYTES = 64 * 1_024
"""Maximum bytes of a compressed record. It holds about 250 kB of JSON, which is a request that fills a window of 60,000
tokens. The middle of a larger record is removed."""

RECORD_TEXT_MAX_BYTES = 8 * 1_024 * 1_024
"""Maximum bytes of a record's JSON when it is decompressed. The bound limits the memory for a record, since redundant
text compresses a hundredfold."""

COMBINED_MAX_BYTES, COMBINED_TEXT_MAX_BYTES = 8 * 1_024, 128 * 1_024
"""Records are combined up to these sizes, compressed and not: to add a record then takes at most 0.5 ms."""


def decompose(data: bytes) -> list[JsonObject]:
    """Return the records in a stored record.

    Raises:
        ValueError: `data` is not a stored record.
    """
    try:
        lines = decompressed(data, RECORD_TEXT_MAX_BYTES).split(b"\n")  # JSON has no raw line breaks
        return [msgspec.json.decode(line, type=JsonObject) for line in lines]
    except (ValueError, msgspec.DecodeError, RecursionError) as wrong:
        raise ValueError(f"a stored trace cannot be read: {wrong}") from None


def combined(stored: Sequence[bytes]) -> bytes | None:
    """Return one stored record with the records of all; None if they would be too large, or one cannot be read."""
    if sum(map(len, stored)) > 2 * COMBINED_MAX_BYTES:
        return None
    try:
        if sum(map(decompressed_size, stored)) > COMBINED_TEXT_MAX_BYTES:
            return None
        data = compressed(b"\n".join(decompressed(each, COMBINED_TEXT_MAX_BYTES) for each in stored))
    except ValueError:
        return None
    return data if len(data) <= COMBINED_MAX_BYTES else None
