"""Counts the readers of a chat that requested presence, over all web processes, and forwards the names of readers who
are typing.

Presence is not stored. Each process publishes the number of its readers of a chat when the number changes and every 10
s. A number that is not repeated for 25 s expires, so the readers of a dead process are no longer counted. Presence is
as private as the chat, because the pub/sub topic contains the chat's owner. Messages about presence may be late or
lost. These messages never delay the chat's events.
"""

import math
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup

from threadcast.fanout.connection import ReaderConnection
from threadcast.store.ports import PubSub
from threadcast_protocol.wire.errors import Failed
from threadcast_protocol.wire.transient import Presence, Transient, Typing, frame_of

__all__ = ["PresenceRooms"]

_log = structlog.get_logger()

REFRESH_SECONDS = 10.0
FORGET_SECONDS = 25.0
"""Seconds between two messages with an unchanged number, and seconds after which the number of a silent process
expires. Two successive messages may be lost before the number expires."""

SETTLE_SECONDS = 0.05
"""Seconds for which changes are collected before they are sent together. If n readers reconnect at once, n frames are
sent instead of n²."""

PAUSE_SECONDS = 1.0
"""Seconds between attempts while the store does not answer."""

TYPING_SECONDS = 1.0
TYPING_MAX_REMEMBERED = 10_000
"""Seconds within which a repeated typing state of a stream is dropped, and the number of streams whose last state is
remembered for this. A changed state is always sent, so that readers have the right state in the end."""

NAMES_MAX = 50
"""The maximum number of names in one frame. `count` is always the total number of readers."""


class _Here(msgspec.Struct, frozen=True, tag="here"):
    """The number of a process's readers of a chat. `asks` is True when the process requests the numbers of the other
    processes, because it is new or may have missed messages."""

    room: str
    count: int
    names: list[str]
    asks: bool


class _Types(msgspec.Struct, frozen=True, tag="types"):
    by: str
    typing: bool
    stream_id: str


_messages = msgspec.json.Decoder(_Here | _Types)


class PresenceRooms:
    """The rooms of a process, one for each chat and owner. `shows_names` is True when authentication is on, because
    only then are the principals known."""

    def __init__(self, store: PubSub, *, shows_names: bool) -> None:
        self._store = store
        self._shows_names = shows_names
        self._rooms: dict[tuple[str, str], _Room] = {}
        self._tasks: TaskGroup | None = None
        self._typed: OrderedDict[tuple[str, str, str], tuple[bool, float]] = OrderedDict()

    def run_in(self, tasks: TaskGroup) -> None:
        """Run all rooms as tasks of this group."""
        self._tasks = tasks

    @contextmanager
    def visiting(self, chat_id: str, visitor: ReaderConnection) -> Iterator[None]:
        """Register a reader for presence during the block. The reader gets its first frame without waiting for a
        change."""
        key = (visitor.principal_id, chat_id)
        room = self._rooms.get(key)
        if room is None:
            room = self._rooms[key] = _Room(self._store, chat_id, visitor.principal_id, self._shows_names)
            if self._tasks is not None:
                self._tasks.start_soon(room.run)
        room.enter(visitor)
        try:
            yield
        finally:
            room.leave(visitor)
            if room.is_empty and self._rooms.get(key) is room:
                del self._rooms[key]

    async def type(self, chat_id: str, principal_id: str, typing: bool, stream_id: str) -> None:
        """Publish the typing state of a stream. A repetition of the same state within a second is dropped. Raises
        Unavailable."""
        key = (principal_id, chat_id, stream_id)
        now = time.monotonic()
        last, said_at = self._typed.get(key, (not typing, -math.inf))
        if last == typing and now - said_at < TYPING_SECONDS:
            return
        self._typed[key] = (typing, now)
        self._typed.move_to_end(key)
        if len(self._typed) > TYPING_MAX_REMEMBERED:
            self._typed.popitem(last=False)
        said = _Types(principal_id, typing, stream_id)
        await self._store.publish(_topic(principal_id, chat_id), msgspec.json.encode(said))


def _topic(principal_id: str, chat_id: str) -> str:
    return f"presence:{principal_id}:{chat_id}"


class _Room:
    """The readers of one chat that requested presence. `_visitors` maps each reader to the number of queues that its
    connection had dropped at the last frame, or to -1 before the first frame. If this number has changed, the frame may
    have been lost with a queue, so it is sent again."""

    def __init__(self, store: PubSub, chat_id: str, principal_id: str, shows_names: bool) -> None:
        self._store = store
        self._chat_id = chat_id
        self._topic = _topic(principal_id, chat_id)
        self._shows_names = shows_names
        self._id = secrets.token_hex(8)
        self._visitors: dict[ReaderConnection, int] = {}
        self._others: dict[str, tuple[_Here, float]] = {}
        self._told: Presence | None = None
        self._said: _Here | None = None
        self._must_say = False
        self._changed = anyio.Event()

    @property
    def is_empty(self) -> bool:
        return not self._visitors

    def enter(self, visitor: ReaderConnection) -> None:
        self._visitors[visitor] = -1
        self._changed.set()

    def leave(self, visitor: ReaderConnection) -> None:
        self._visitors.pop(visitor, None)
        self._changed.set()

    async def run(self) -> None:
        """Run until the last reader has disconnected. Errors of the store only pause the room."""
        while not self.is_empty:
            try:
                async with self._store.subscribe(self._topic) as heard, anyio.create_task_group() as tasks:
                    tasks.start_soon(self._listen, heard)
                    await self._tell_while_somebody_is_here()
                    tasks.cancel_scope.cancel()
            except Exception as wrong:  # the boundary of a room: its errors must not affect other code
                if not _is_failed(wrong):
                    _log.exception("presence.failed", chat_id=self._chat_id)
                self._said = None
                await anyio.sleep(PAUSE_SECONDS)

    async def _tell_while_somebody_is_here(self) -> None:
        refresh_at = anyio.current_time() + REFRESH_SECONDS
        while True:
            await anyio.sleep(SETTLE_SECONDS)
            self._changed = anyio.Event()
            await self._say()
            if self.is_empty:
                return
            self._tell()
            with anyio.CancelScope(deadline=refresh_at):
                await self._changed.wait()
            if anyio.current_time() >= refresh_at:
                refresh_at += REFRESH_SECONDS
                self._must_say = True

    async def _say(self) -> None:
        """Publish changes to the other processes."""
        names = sorted({visitor.principal_id for visitor in self._visitors})[:NAMES_MAX]
        here = _Here(self._id, len(self._visitors), names, asks=self._said is None)
        is_said = self._said is not None and (here.count, here.names) == (self._said.count, self._said.names)
        if is_said and not self._must_say:
            return
        self._must_say = False
        await self._store.publish(self._topic, msgspec.json.encode(here))
        self._said = here

    def _tell(self) -> None:
        """Send changes to the readers of this process."""
        now = time.monotonic()
        self._others = {room: other for room, other in self._others.items() if now - other[1] < FORGET_SECONDS}
        others = [here for here, _ in self._others.values()]
        names = sorted(
            {visitor.principal_id for visitor in self._visitors} | {name for here in others for name in here.names}
        )
        count = len(self._visitors) + sum(here.count for here in others)
        presence = Presence(count, names[:NAMES_MAX] if self._shows_names else None)
        for visitor, drops in self._visitors.items():
            if presence != self._told or drops != visitor.drops:
                self._visitors[visitor] = visitor.drops
                self._send(visitor, presence)
        self._told = presence

    def _send(self, visitor: ReaderConnection, transient: Transient) -> None:
        visitor.write(frame_of(self._chat_id, transient))

    async def _listen(self, heard: AsyncIterator[bytes | None]) -> None:
        async for payload in heard:
            try:
                said = None if payload is None else _messages.decode(payload)
            except msgspec.DecodeError:
                continue  # written by another version, or by another client of the store
            if said is None:  # messages may be missing, so this process requests the numbers again
                self._said = None
                self._changed.set()
            elif isinstance(said, _Types):
                typing = Typing(said.typing, said.by if self._shows_names else None)
                for visitor in list(self._visitors):
                    if not said.stream_id or visitor.name != said.stream_id:
                        self._send(visitor, typing)
            elif said.room != self._id:
                self._hear(said)

    def _hear(self, here: _Here) -> None:
        if here.count > 0:
            self._others[here.room] = (here, time.monotonic())
        else:
            self._others.pop(here.room, None)
        self._must_say = self._must_say or here.asks
        self._changed.set()


def _is_failed(wrong: BaseException) -> bool:
    if isinstance(wrong, BaseExceptionGroup):
        return all(_is_failed(each) for each in wrong.exceptions)
    return isinstance(wrong, Failed)
