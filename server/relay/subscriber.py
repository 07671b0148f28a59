"""One chat on one stream: which snapshot its reader holds, and what goes into the blocks of this chat.

A relay offers it frames; the `Connection`, shared by all chats of the stream, takes the bytes. A stream of one chat
writes blocks that are shared by all readers of one base, id included (DESIGN §5). A stream of many chats shares the
data line, and ends each block with an id of its own that tells where its reader stands in all of them (PROTOCOL §4).
"""

from collections.abc import Sequence
from typing import Protocol

import anyio

from protocol.ids import Position
from protocol.places import place_word, tag_of
from protocol.sse import Frame
from protocol.transient import ChatRemoved, frame_of
from server.relay.connection import Connection, EndReason

__all__ = ["SnapshotSource", "Subscriber"]

_OF_THE_STREAM: frozenset[EndReason] = frozenset({"shutdown", "slow", "store", "left", "replaced"})
"""Reasons that concern the whole stream, also one of many chats."""


class SnapshotSource(Protocol):
    """What a subscriber asks of its relay."""

    def snapshot(self) -> tuple[bytes, int]:
        """The block of a snapshot taken now, and the position it stands at."""


class Subscriber:
    """`base` is the position of the snapshot that this reader holds."""

    __slots__ = ("_left", "_source", "_tag", "base", "chat_id", "connection", "is_one_of_many", "needs_snapshot")

    def __init__(self, connection: Connection, source: SnapshotSource, chat_id: str, *, is_one_of_many: bool) -> None:
        self.connection = connection
        self.chat_id = chat_id
        self.is_one_of_many = is_one_of_many
        self.base = 0
        self.needs_snapshot = False
        self._left: anyio.Event | None = None
        self._source = source
        self._tag = tag_of(chat_id) if is_one_of_many else ""

    @property
    def left(self) -> anyio.Event:
        """Set when this chat has ended, on a stream of many, which goes on."""
        if self._left is None:  # most streams are of one chat: an event is a kilobyte that they never use
            self._left = anyio.Event()
        return self._left

    @property
    def principal_id(self) -> str:
        return self.connection.principal_id

    def start_with_snapshot(self) -> None:
        """Begin, or begin again, with a snapshot of what then is."""
        self.needs_snapshot = True
        self.connection.places.pop(self.chat_id, None)
        self.connection.want_snapshot(self, drop=not self.is_one_of_many)

    def start_at(self, place: Position, missed: Sequence[Frame]) -> None:
        """Go on where this reader stopped: `missed` are the frames after its place."""
        self.base = place.base
        self.connection.greet()
        if self.is_one_of_many:
            self._stand_at(place.epoch, place.position)
            self.write_frames(missed)
        else:
            self.write(b"".join(frame.for_base(place.base) for frame in missed))

    def resync(self, reason: str) -> None:
        """What this reader holds cannot be continued."""
        self.connection.metrics.resyncs.labels(reason).inc()
        self.start_with_snapshot()

    def write(self, data: bytes) -> None:
        """Hand over ready blocks of the log. Never waits."""
        if not self.needs_snapshot:
            self.connection.write(data, self)

    def write_frames(self, frames: Sequence[Frame]) -> None:
        """The same on a stream of many chats: each block gets this stream's own id."""
        if self.needs_snapshot or not frames:
            return
        pieces: list[bytes] = []
        for frame in frames:
            self._stand_at(frame.epoch, frame.position)
            pieces += (frame.line_for_base(self.base), self.connection.id_line())
        self.connection.write(b"".join(pieces), self)

    def take_snapshot(self) -> tuple[bytes, int, bytes]:
        """A snapshot of what now is: a buffer, how much of it to write, and what to write after that."""
        data, self.base = self._source.snapshot()
        self.needs_snapshot = False
        if not self.is_one_of_many:
            return data, len(data), b""
        end = data.rindex(b"\nid: ")
        place = Position.parse(data[end + len(b"\nid: ") :].decode().strip())
        self._stand_at(0 if place is None else place.epoch, self.base)
        return data, end, self.connection.id_line()

    def end(self, reason: EndReason) -> None:
        """End the stream; or, when it is the chat that is no more, its part of a stream of many."""
        if not self.is_one_of_many or reason in _OF_THE_STREAM:
            self.connection.end(reason)
        elif not self.left.is_set():
            self.leave()
            told = "unavailable" if reason == "newer_version" else reason  # add it again, wherever that is asked next
            self.connection.write(frame_of(self.chat_id, ChatRemoved(told)))

    def leave(self) -> None:
        """Nothing more of this chat. Safe to repeat."""
        if not self.left.is_set():
            self.left.set()
            self.needs_snapshot = True  # what is still offered goes nowhere
            self.connection.places.pop(self.chat_id, None)
            self.connection.forget(self)

    def _stand_at(self, epoch: int, position: int) -> None:
        word = place_word(self._tag, Position(epoch, position, self.base))
        self.connection.places[self.chat_id] = word.encode()
