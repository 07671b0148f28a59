"""Reads the stored form of a trace record: compressed JSON, with a bound on its compressed and on its decompressed
size."""

import msgspec

from threadcast.store.compression import decompressed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["RECORD_MAX_BYTES", "RECORD_TEXT_MAX_BYTES", "decompose"]

RECORD_MAX_BYTES = 64 * 1_024
"""Maximum bytes of a compressed record. It holds about 250 kB of JSON, which is a request that fills a window of 60,000
tokens. The middle of a larger record is removed."""

RECORD_TEXT_MAX_BYTES = 8 * 1_024 * 1_024
"""Maximum bytes of a record's JSON when it is decompressed. The bound limits the memory for a record, since redundant
text compresses a hundredfold."""


def decompose(data: bytes) -> JsonObject:
    """Return the record of a trace from its compressed JSON.

    Raises:
        ValueError: `data` is not a record.
    """
    try:
        found: JsonObject = msgspec.json.decode(decompressed(data, RECORD_TEXT_MAX_BYTES), type=JsonObject)
        return found
    except (ValueError, msgspec.DecodeError, RecursionError) as wrong:
        raise ValueError(f"a stored trace cannot be read: {wrong}") from None
