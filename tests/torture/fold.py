"""Folds the frames of one chat that one subscriber receives, and finds errors in the frames.

Raw readers and readers of the real client use it. The module folds with the product's reducer, and checks the promises
of PROTOCOL §4 about `seq` and ids. States are values, so earlier states are kept at no cost, and a reader may resume
from one of them. A `Mistake` reports an error of the server; the state is then dropped.
"""

from collections import deque

import msgspec

from threadcast_protocol.fold.reducer import Gap, reduce
from threadcast_protocol.fold.snapshot import snapshot_of, state_from_snapshot
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.framing.codec import decode_event, decode_snapshot, encode
from threadcast_protocol.framing.stream_ids import parse_stream_ids
from threadcast_protocol.wire.events import Event, Snapshot

__all__ = ["ChatFold", "FrameHead", "Mistake", "read_head"]

HISTORY_KEPT = 6
"""Number of earlier states that are kept for each chat."""

HISTORY_EVERY = 25
"""Number of frames between two kept states, so that the kept states reach back further than one quick answer."""


class Mistake(Exception):
    """A forbidden frame. `kind` is the kind of violation; `chat_id` is the frame's chat, if known."""

    def __init__(self, kind: str, words: str, chat_id: str = "") -> None:
        super().__init__(words)
        self.kind = kind
        self.chat_id = chat_id


class FrameHead(msgspec.Struct, frozen=True):
    chat_id: str = ""
    seq: str | None = None
    type: str = ""


_head = msgspec.json.Decoder(FrameHead)


def read_head(data: bytes) -> FrameHead:
    """Return the chat of a frame, and the frame's position. Raises Mistake."""
    try:
        return _head.decode(data)
    except msgspec.DecodeError as wrong:
        raise Mistake("frame", f"{data[:200]!r} is no frame: {wrong}") from None


class ChatFold:
    """`state` is None before the first snapshot and after a mistake. `must_begin_anew` is set when the reader has sent
    a forged position, so that the next frame of this chat must be a snapshot."""

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.state: ChatState | None = None
        self.seq = 0
        self.epochs: set[int] = set()
        self.must_begin_anew = False
        self.snapshots = 0
        self.events = 0
        self.history: deque[tuple[str, ChatState, int]] = deque(maxlen=HISTORY_KEPT)

    @property
    def position(self) -> int:
        return self.state.position if self.state is not None else -1

    @property
    def snapshot(self) -> bytes | None:
        return None if self.state is None else encode(snapshot_of(self.state))

    def go_back(self, state: ChatState, seq: int) -> None:
        self.state, self.seq = state, seq
        self.history.clear()

    def take(self, head: FrameHead, data: bytes, stream_id: str) -> Event | Snapshot:
        """Fold one frame that has a `seq`. Raises Mistake when the frame is wrong; the state is then dropped."""
        try:
            return self._take(head, data, stream_id)
        except Mistake as wrong:
            self.state = None
            wrong.chat_id = self.chat_id
            raise
        except (Gap, msgspec.DecodeError) as wrong:
            self.state = None
            raise Mistake("frame", f"{wrong!r}: {data[:200]!r}") from None

    def _take(self, head: FrameHead, data: bytes, stream_id: str) -> Event | Snapshot:
        place = parse_stream_ids(stream_id, [self.chat_id]).get(self.chat_id)
        if place is None:
            raise Mistake("frame", f"the id {stream_id!r} is no position in {self.chat_id}: {data[:200]!r}")
        if head.seq != str(place.seq):
            raise Mistake("seq", f"seq {head.seq} comes with the id {stream_id}")
        self.epochs.add(place.epoch)
        if head.type == "snapshot":
            if place.seq:
                raise Mistake("seq", f"a snapshot has seq {head.seq}")
            snapshot = decode_snapshot(data)
            self.state = state_from_snapshot(self.chat_id, snapshot, place.position)
            self.seq, self.must_begin_anew = 0, False
            self.snapshots += 1
            self.history.clear()
            return snapshot
        if self.must_begin_anew:
            raise Mistake("forged", f"a forged position was resumed with {data[:100]!r}")
        if self.state is None:
            raise Mistake("seq", f"event {head.seq} comes before any snapshot")
        if place.seq != self.seq + 1 or place.position != self.state.position + 1:
            raise Mistake("seq", f"{head.seq} at {place.position} comes after {self.seq} at {self.state.position}")
        event = decode_event(data)
        self.state = reduce(self.state, place.position, event)
        self.seq = place.seq
        self.events += 1
        if self.events % HISTORY_EVERY == 0:
            self.history.append((stream_id, self.state, self.seq))
        return event
