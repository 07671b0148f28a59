"""Defines an entry of a chat's log as it is stored and published (DISPATCH §3). Each entry is one atomic commit.

An entry contains public events, private facts and acks as JSON. The JSON is decoded only when it is needed. `before` is
the head string of the previous entry. An entry continues a state if `before` equals the head string of the state; the
same rule applies to fences, new owners and rollbacks.
"""

import msgspec

from threadcast_protocol.wire.ids import EntryId

__all__ = ["FORMAT_VERSION", "EntryAck", "Fence", "RawEntry"]

FORMAT_VERSION = 1
"""The version of the format of entries. Increment the number for each change that older readers cannot fold correctly.
Readers never fold an entry with a higher number than their own."""


class Fence(msgspec.Struct, frozen=True):
    """Marks the first entry of a new owner. `why` is `wake`, `takeover` or `retake`."""

    worker: str
    why: str


class EntryAck(msgspec.Struct, frozen=True, array_like=True):
    """An ack in an entry: [request id, accepted, final] (DISPATCH §3)."""

    request_id: str
    accepted: bool
    final: bool


class RawEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the log. `position` is the position of the last public event up to this entry; `time_ms` is the time
    of the store's clock.

    `events`, `facts` and `acks` are JSON arrays. `facts` may be empty bytes, and are never published.
    """

    entry_id: EntryId
    head: str
    before: str
    position: int
    time_ms: int
    version: int
    events: bytes = b"[]"
    facts: bytes = b""
    acks: bytes = b""
    fence: Fence | None = None
