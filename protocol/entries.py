"""An entry of a chat's log: one atomic commit, as it is stored and as it is published (DISPATCH §3).

An entry carries public events, private facts and acks as JSON bytes that nobody decodes before they are needed. Its
`before` is the head string of what came before it: contiguous means `before` equals the head string I have, one rule
for entries, fences, new owners and rollbacks.
"""

import msgspec

from protocol.ids import EntryId

__all__ = ["FORMAT_VERSION", "Fence", "RawEntry"]

FORMAT_VERSION = 1
"""Raised by every change that an older reader would lose; a reader never folds an entry that is newer than itself."""


class Fence(msgspec.Struct, frozen=True):
    """A new owner's first act. `why`: wake, takeover or retake."""

    worker: str
    why: str


class RawEntry(msgspec.Struct, frozen=True, kw_only=True):
    """`position` is that of the last public event up to here; `time_ms` is the store's clock.

    `events` and `acks` are JSON arrays, `facts` too ('' for none; never published).
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
