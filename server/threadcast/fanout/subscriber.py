"""A subscriber is one chat on one stream. The subscriber remembers which snapshot the reader has, and makes the blocks
of this chat.

A relay passes frames to the subscriber. The `ReaderConnection`, which all chats of the stream share, writes the bytes.
On a stream of one chat, all readers with the same base share whole blocks, including the id (DESIGN §5). On a stream of
many chats, readers share the data line, and each block ends with the stream's own id, which has the reader's positions
in all chats (PROTOCOL §4).
"""

from collections.abc import Sequence
from typing import Protocol

from threadcast.base.lean_event import LeanEvent
from threadcast.fanout.connection import EndReason, ReaderConnection
from threadcast_protocol.framing.sse import Frame
from threadcast_protocol.framing.stream_ids import stream_id_word, tag_of
from threadcast_protocol.wire.ids import Position
from threadcast_protocol.wire.transient import ChatRemoved, frame_of

__all__ = ["SnapshotSource", "Subscriber"]

_OF_THE_STREAM: frozenset[EndReason] = frozenset({"shutdown", "slow", "store", "left", "replaced"})
"""Reasons that end the whole stream even if it has many chats. Any other reason ends one chat."""


class SnapshotSource(Protocol):
    """The method of the relay that a subscriber calls."""

    def snapshot(self) -> tuple[bytes, int]:
        """Return the block of a snapshot of the present state, and its position."""


class Subscriber:
    """A reader of one chat. `base` is the position of the snapshot that the reader's state began with."""

    __slots__ = ("_left", "_source", "_tag", "base", "chat_id", "connection", "is_one_of_many", "needs_snapshot")

    def __init__(
        self, connection: ReaderConnection, source: SnapshotSource, chat_id: str, *, is_one_of_many: bool
    ) -> None:
        self.connection = connection
        self.chat_id = chat_id
        self.is_one_of_many = is_one_of_many
        self.base = 0
        self.needs_snapshot = False
        self._left: LeanEvent | None = None
        self._source = source
        self._tag = tag_of(chat_id) if is_one_of_many else ""

    @property
    def left(self) -> LeanEvent:
        """An event that is set when this chat has ended but its stream of many chats continues."""
        if self._left is None:  # most streams have one chat and never use this event, which takes memory
            self._left = LeanEvent()
        return self._left

    @property
    def principal_id(self) -> str:
        return self.connection.principal_id

    def start_with_snapshot(self) -> None:
        """Begin, or begin again, with a snapshot. The snapshot shows the state at the time when the snapshot is
        written."""
        if self._has_left:
            return
        self.needs_snapshot = True
        self.connection.stream_id_words.pop(self.chat_id, None)
        self.connection.want_snapshot(self, drop=not self.is_one_of_many)

    def hide(self, nothing: SnapshotSource) -> None:
        """Show the empty chat `nothing` from now on, because the chat turned out to belong to another principal."""
        self._source = nothing

    def start_at(self, stream_position: Position, missed: Sequence[Frame]) -> None:
        """Resume at the position where this reader stopped. `missed` are the frames after this position."""
        if self._has_left:
            return
        self.base = stream_position.base
        self.connection.greet()
        if self.is_one_of_many:
            self._stand_at(stream_position.epoch, stream_position.position)
            self.write_frames(missed)
        else:
            self.write(b"".join(frame.for_base(stream_position.base) for frame in missed))

    def resync(self, reason: str) -> None:
        """Begin again with a snapshot, because the reader's state cannot be continued."""
        if not self._has_left:
            self.connection.metrics.resyncs.labels(reason).inc()
            self.start_with_snapshot()

    def write(self, data: bytes) -> None:
        """Write encoded blocks of the log without waiting."""
        if not self.needs_snapshot:
            self.connection.write(data, self)

    def write_frames(self, frames: Sequence[Frame]) -> None:
        """Write frames on a stream of many chats. Each block gets the stream's own id."""
        if self.needs_snapshot or not frames:
            return
        pieces: list[bytes] = []
        for frame in frames:
            self._stand_at(frame.epoch, frame.position)
            pieces += (frame.line_for_base(self.base), self.connection.id_line())
        self.connection.write(b"".join(pieces), self)

    def take_snapshot(self) -> tuple[bytes, int, bytes]:
        """Return a snapshot of the present state as three values: a buffer, the number of bytes to write from the
        buffer, and the bytes to write afterwards."""
        data, self.base = self._source.snapshot()
        self.needs_snapshot = False
        if not self.is_one_of_many:
            return data, len(data), b""
        end = data.rindex(b"\nid: ")
        stream_position = Position.parse(data[end + len(b"\nid: ") :].decode().strip())
        self._stand_at(0 if stream_position is None else stream_position.epoch, self.base)
        return data, end, self.connection.id_line()

    def end(self, reason: EndReason) -> None:
        """End the stream. On a stream of many chats, end only this chat if `reason` concerns only this chat."""
        if not self.is_one_of_many or reason in _OF_THE_STREAM:
            self.connection.end(reason)
        elif not self.left.is_set():
            self.leave()
            told = "unavailable" if reason in ("newer_version", "own_now") else reason  # clients may add the chat again
            self.connection.write(frame_of(self.chat_id, ChatRemoved(told)))

    def leave(self) -> None:
        """Stop sending this chat. Safe to repeat."""
        if not self.left.is_set():
            self.left.set()
            self.needs_snapshot = True  # further frames are ignored
            self.connection.stream_id_words.pop(self.chat_id, None)
            self.connection.forget(self)

    @property
    def _has_left(self) -> bool:
        """Whether this chat has ended. Its task may still run for a moment, and the stream's ids must keep the position
        of the subscriber that may follow it."""
        return self._left is not None and self._left.is_set()

    def _stand_at(self, epoch: int, position: int) -> None:
        word = stream_id_word(self._tag, Position(epoch, position, self.base))
        self.connection.stream_id_words[self.chat_id] = word.encode()
