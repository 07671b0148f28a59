"""Provides the frames of one chat for readers that resume: the newest frames from memory, and earlier frames from the
log.

A relay stores each frame here after sending the frame. After a restart, all readers resume at once while no frames are
in memory. The log is then read once for all readers, and its newest frames are kept in memory. The log is read
separately only for a reader whose position is before the first frame in memory.
"""

import asyncio
from collections.abc import Callable, Sequence

import anyio

from threadcast.chat.entries import RawEntry
from threadcast.chat.owner_state import OwnerState, resume_is_possible
from threadcast.store.ports import Log
from threadcast_protocol.framing.codec import split_array
from threadcast_protocol.framing.sse import Frame
from threadcast_protocol.wire.ids import Position

__all__ = ["RecentFrames", "frames_of"]

HELD_MAX_EVENTS = 2_000
HELD_MAX_BYTES = 1_000_000
"""The maximum number and the maximum size of one chat's frames in memory. Older frames are read from the log while the
log contains them."""


class RecentFrames:
    """Keeps the frames up to the relay's present state. A *history* ends when new frames do not continue the earlier
    frames, which is the case after a reload or a change of branch."""

    __slots__ = (
        "_chat_id",
        "_frames",
        "_frames_bytes",
        "_histories",
        "_loads",
        "_log_holds_more",
        "_recalled_at",
        "_recalling",
        "_state",
        "_store",
    )

    def __init__(self, chat_id: str, store: Log, loads: anyio.CapacityLimiter, state: Callable[[], OwnerState]) -> None:
        """`loads` limits how many logs are read at once; `state` returns the relay's present state."""
        self._chat_id = chat_id
        self._store = store
        self._loads = loads
        self._state = state
        self._frames: list[tuple[Frame, int]] = []  # an empty deque takes 760 bytes
        self._frames_bytes = 0
        self._histories = 0
        self._recalling = asyncio.Lock()
        self._recalled_at = -1  # the history for which the log was read into memory
        self._log_holds_more = False

    def keep(self, frames: Sequence[Frame], size_each: int) -> None:
        """Add the next frames, which have `size_each` bytes on average. If there are too many frames in memory, the
        oldest frames are dropped."""
        for frame in frames:
            self._frames.append((frame, size_each))
            self._frames_bytes += size_each
        while len(self._frames) > HELD_MAX_EVENTS or self._frames_bytes > HELD_MAX_BYTES:
            self._frames_bytes -= self._frames.pop(0)[1]
            self._log_holds_more = True  # the log may still have the frame: it is trimmed at checkpoints only

    def forget(self) -> None:
        """Drop all frames and begin a new history."""
        self._histories += 1
        self._frames.clear()
        self._frames_bytes = 0

    async def after(self, wanted: Position) -> Sequence[Frame] | None:
        """Return the frames after `wanted`, or None when that position is not in this history or when later frames are
        no longer available.

        Frames that are not in memory are read from the log. As many of these frames as memory allows are read once for
        all readers. Earlier frames are read for each reader. The frames of entries that are folded meanwhile are kept
        in memory.
        """
        position = wanted.position
        if not resume_is_possible(self._state(), wanted.epoch, position):
            return None
        if position + 1 < self._first:
            await self._recall()
            if not resume_is_possible(self._state(), wanted.epoch, position):
                return None
        if position + 1 >= self._first:
            return self._held_after(position)
        if self._recalled_at == self._histories and not self._log_holds_more:
            return None
        entries = await self._newest_of_log()
        # If there are no entries, the relay may now follow another log of this id, in which `position` has no meaning.
        return self._from_log(entries, position) if entries else None

    @property
    def _first(self) -> int:
        return self._frames[0][0].position if self._frames else self._state().position + 1

    def _held_after(self, position: int) -> list[Frame]:
        return [frame for frame, _ in self._frames if frame.position > position]

    async def _recall(self) -> None:
        """Read frames from the log and insert them before the first frame in memory, until the memory's limits are
        reached."""
        async with self._recalling:
            if self._recalled_at != self._histories and (entries := await self._newest_of_log()):
                self._recalled_at = self._histories
                self._log_holds_more = self._keep_before(entries)

    async def _newest_of_log(self) -> list[RawEntry]:
        """Return the newest page of the log; [] if it does not contain the state's head, or a new history has begun
        meanwhile."""
        head, history = self._state().head, self._histories
        async with self._loads:
            entries = await self._store.read_log(self._chat_id, newest=True)
        return entries if self._histories == history and any(entry.head == head for entry in entries) else []

    def _keep_before(self, entries: list[RawEntry]) -> bool:
        """Insert the frames of `entries` before the frames in memory. Returns True when the limits of memory were
        reached before all frames were inserted."""
        for entry in reversed(entries):
            frames = frames_of(self._chat_id, entry)
            size_each = len(entry.events) // max(1, len(frames))
            for frame in reversed(frames):
                if frame.position >= self._first:  # the frame is in memory already, or its entry is not folded yet
                    continue
                if frame.position != self._first - 1:
                    return False
                if len(self._frames) >= HELD_MAX_EVENTS or self._frames_bytes + size_each > HELD_MAX_BYTES:
                    return True
                self._frames.insert(0, (frame, size_each))
                self._frames_bytes += size_each
        return False

    def _from_log(self, entries: list[RawEntry], position: int) -> Sequence[Frame] | None:
        """Return the log's frames after `position`, followed by the frames that were kept since the log was read.
        Returns None if a frame is missing."""
        last = self._state().position  # the relay has not folded later frames yet
        frames = [
            frame
            for entry in entries
            if entry.position > position
            for frame in frames_of(self._chat_id, entry)
            if position < frame.position <= last
        ]
        frames += self._held_after(frames[-1].position if frames else position)
        is_whole = [frame.position for frame in frames] == [*range(position + 1, last + 1)]
        return frames if is_whole else None


def frames_of(chat_id: str, entry: RawEntry) -> list[Frame]:
    """Return the frames of a stored entry; [] for an entry that selects a branch, after which readers need a
    snapshot."""
    raws = [bytes(raw) for raw in split_array(entry.events)]
    if any(raw.startswith(b'{"type":"branch_selected"') for raw in raws):
        return []
    first = entry.position - len(raws) + 1
    epoch = entry.entry_id.epoch
    return [Frame(chat_id, raw, epoch, position) for position, raw in enumerate(raws, start=first)]
