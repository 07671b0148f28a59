"""Reads and writes the stored form of trace records: lines of JSON, packed together (`packing.py`), with bounds on
their packed and unpacked size.

When a chat is at rest, the records of its short runs are combined, because most of their text is the same. The traces
of 50 short exchanges then take 3.4 kB instead of 49 kB.
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

COMBINED_TEXT_MAX_BYTES = 128 * 1_024
"""Records are combined up to this size of their JSON, which is read and packed again at each rest of the chat: this
takes a thread about a millisecond."""


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


def combined(stored: Sequence[bytes]) -> list[tuple[int, bytes]]:
    """Return the same records in fewer stored records: pairs of a number of consecutive `stored`, and the stored
    record that contains them. A record that is large, or cannot be read, stays as it is."""
    groups: list[list[bytes]] = []
    room = 0
    for each in stored:
        size = _size_of(each)
        if size > room:
            groups.append([])
            room = COMBINED_TEXT_MAX_BYTES
        groups[-1].append(each)
        room -= size
    return [pair for group in groups for pair in _joined(group)]


def _joined(group: Sequence[bytes]) -> list[tuple[int, bytes]]:
    if len(group) > 1:
        try:
            whole, *others = map(_read, group)
            data = whole.plus(b"".join(b"\n" + each.text() for each in others)).encode()
        except ValueError:
            data = b""
        if 0 < len(data) <= RECORD_MAX_BYTES:
            return [(len(group), data)]
    return [(1, each) for each in group]


def _read(stored: bytes) -> Packed:
    """Read a stored record, also of an older version, which compressed records without packing them. Raises ValueError
    when the record cannot be read, or is too large."""
    if stored.startswith(FIRST_BYTES):
        return Packed().plus(decompressed(stored, RECORD_TEXT_MAX_BYTES))
    return Packed.decode(stored, RECORD_TEXT_MAX_BYTES)


def _size_of(stored: bytes) -> int:
    """Return the bytes of a stored record's JSON, or more than can be combined if the record cannot be read."""
    try:
        return decompressed_size(stored) if stored.startswith(FIRST_BYTES) else Packed.size_of(stored)
    except ValueError:
        return COMBINED_TEXT_MAX_BYTES + 1
