"""Decides from the size of a log when a checkpoint is due, and which entries may be trimmed (DESIGN §2).

The writer asks the policy before each entry and adds the entry afterwards. When a chat is released, its policy is
cached beside its state. Without the cached policy, each short ownership would count from zero, write a checkpoint, and
never trim. Entries before the checkpoint are kept only for readers that resume; entries after it are never trimmed.
"""

from collections import deque
from dataclasses import dataclass, field

from threadcast.store.load import Extent
from threadcast_protocol.wire.ids import EntryId

__all__ = ["CheckpointPolicy"]

CHECKPOINT_MIN_BYTES, CHECKPOINT_EVENTS = 256_000, 2_000
COMPACT_BYTES, COMPACT_SHARE = 64_000, 8
"""At rest, a log is compacted if the state has at most 64 kB, because a checkpoint of this size takes 0.5 ms, or if the
entries after the last checkpoint have more than an eighth of the state's size. So a long chat does not get a checkpoint
after every run."""

KEEP_EVENTS, KEEP_BYTES = 2_000, 1_000_000
"""`CHECKPOINT_MIN_BYTES` and `CHECKPOINT_EVENTS` are the sizes at which a checkpoint is due; `KEEP_EVENTS` and
`KEEP_BYTES` are the size of the log that is kept for readers that resume (DESIGN §2)."""

GROUP_EVENTS, GROUP_BYTES = KEEP_EVENTS // 20, KEEP_BYTES // 20
"""The maximum size of a group of entries that are trimmed together. Listing every entry separately would take as much
memory as the state of a short chat."""

GROWN_BYTES, GROWN_EVENTS = 65_536, 500
"""A log that has grown by so much since its last compaction is compacted as soon as its chat is at rest. So the history
has the events before a trim, and the account of the chat's owner lags by little."""

CHECKPOINT_MAX_BYTES = 64_000_000
"""A state above this size gets no new checkpoint, so its log is not trimmed any more and is read in pages. Encoding
64 MB blocks the event loop for 0.12 s (measured: 1.85 s for 1 GB), and a Redis string holds at most 512 MB."""


@dataclass(slots=True)
class CheckpointPolicy:
    """`pending_*` count the events and bytes that the log holds after the checkpoint, and `grown_*` those that were
    added since the last compaction. `held` lists groups of the newest entries: for each group the id of its first
    entry, and the numbers of its events and bytes. Entries that this process has not seen are not in the list, and the
    first trim drops them."""

    checkpoint_id: EntryId | None = None
    checkpoint_bytes: int = 0
    pending_bytes: int = 0
    pending_events: int = 0
    grown_bytes: int = 0
    grown_events: int = 0
    held: deque[tuple[EntryId, int, int]] = field(default_factory=deque)

    @classmethod
    def of(cls, extent: Extent) -> "CheckpointPolicy":
        known = cls()
        position = 0
        if extent.checkpoint is not None:
            known.checkpoint_id, position, known.checkpoint_bytes = extent.checkpoint
        for entry_id, entry_position, size_bytes in extent.entries:
            known.add(entry_id, entry_position - position, size_bytes)
            position = entry_position
        return known

    @property
    def state_bytes(self) -> int:
        """The approximate size of the folded state in bytes."""
        return self.checkpoint_bytes + self.pending_bytes

    def compacts_at_rest(self) -> bool:
        """Return whether the log is compacted when the chat is at rest."""
        if self.state_bytes > CHECKPOINT_MAX_BYTES:
            return False
        return self.state_bytes <= COMPACT_BYTES or self.pending_bytes * COMPACT_SHARE > self.checkpoint_bytes

    def is_due(self, size_bytes: int, *, is_importing: bool = False) -> bool:
        """Return whether an entry of this size needs a checkpoint; False for a state above CHECKPOINT_MAX_BYTES. During
        a large import a checkpoint is due only when the state has doubled, because a checkpoint for each part would
        cost the square of the state's size."""
        pending = self.pending_bytes + size_bytes
        if self.checkpoint_bytes + pending > CHECKPOINT_MAX_BYTES:
            return False
        if pending > max(CHECKPOINT_MIN_BYTES, self.checkpoint_bytes):
            return True
        if is_importing:
            return False
        return self.pending_events > CHECKPOINT_EVENTS

    def trim_before(self) -> EntryId | None:
        """Return the oldest entry to keep when the next checkpoint is written; None to keep all entries."""
        if self.checkpoint_id is None:
            return None
        events = size = 0
        for entry_id, entry_events, entry_bytes in reversed(self.held):
            events, size = events + entry_events, size + entry_bytes
            if events >= KEEP_EVENTS or size >= KEEP_BYTES:
                return entry_id
        return None

    def add(self, entry_id: EntryId, events_count: int, size_bytes: int) -> None:
        """Count an entry that was appended."""
        first, events, size = self.held[-1] if self.held else (entry_id, GROUP_EVENTS, 0)
        if events < GROUP_EVENTS and size < GROUP_BYTES:
            self.held[-1] = (first, events + events_count, size + size_bytes)
        else:
            self.held.append((entry_id, events_count, size_bytes))
        self.pending_bytes += size_bytes
        self.pending_events += events_count
        self.grown_bytes += size_bytes
        self.grown_events += events_count

    @property
    def has_grown(self) -> bool:
        """Whether the log is compacted as soon as the chat is at rest."""
        return self.grown_bytes > GROWN_BYTES or self.grown_events > GROWN_EVENTS

    def note_compaction(self) -> None:
        """Count the growth of the log anew."""
        self.grown_bytes = self.grown_events = 0

    def move_checkpoint(self, entry_id: EntryId, size_bytes: int, trim: EntryId | None) -> None:
        """Note that the last entry has a checkpoint, and that the entries before `trim` were dropped."""
        self.checkpoint_id, self.checkpoint_bytes = entry_id, size_bytes
        self.pending_bytes = self.pending_events = 0
        while trim is not None and self.held and self.held[0][0] < trim:
            self.held.popleft()
