"""The listening half of the in-memory store: bells, mail, a chat's log channel. The twin of `channels.py`.

It knows channels by name and never looks into a message. `memory.py` builds on it. A listener is there as soon as it
has entered, so nothing published afterwards is missed, until `interrupt` says that something may have been.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel

from server.store.keys import BUCKETS
from server.store.listener import Listener
from server.store.memory_records import Bucket
from server.store.news import Mail, Notices
from server.store.notice import AtOnce, Notice
from server.store.port import DueBell

__all__ = ["MemoryChannels"]


class _Switchboard:
    """Channels by name. Publishing tells how many listened, as PUBLISH does."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Listener]] = {}

    def join(self, channel: str) -> Listener:
        listener = Listener(())
        self._listeners.setdefault(channel, []).append(listener)
        return listener

    def leave(self, channel: str, listener: Listener) -> None:
        self._listeners[channel].remove(listener)
        if not self._listeners[channel]:
            del self._listeners[channel]

    def publish(self, channel: str, payload: bytes) -> int:
        listeners = self._listeners.get(channel, ())
        for listener in listeners:
            listener.offer(payload)
        return len(listeners)

    def is_watched(self, channel: str) -> bool:
        return channel in self._listeners

    def interrupt(self) -> None:
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.offer(None)


class _MemoryBell:
    def __init__(self, channels: "MemoryChannels") -> None:
        self._channels = channels
        self._first = 0

    async def wait(self, timeout_seconds: float) -> int | None:
        order = [(self._first + number) % BUCKETS for number in range(BUCKETS)]
        self._first = (self._first + 1) % BUCKETS
        return await self._channels.pop_bell(order, timeout_seconds)

    async def put_back(self, bucket: int) -> None:
        await anyio.lowlevel.checkpoint()
        self._channels.ring(bucket)


class MemoryChannels:
    """The part of the in-memory store that tells others."""

    def __init__(self) -> None:
        self._buckets = [Bucket() for _ in range(BUCKETS)]
        self._switchboard = _Switchboard()
        self._rung = anyio.Event()

    def interrupt(self) -> None:
        """As after a lost connection: every follower and every mail reads that something may be missing."""
        self._switchboard.interrupt()

    def ring(self, bucket: int) -> None:
        self._buckets[bucket].has_token = True
        self._rung.set()
        self._rung = anyio.Event()

    async def pop_bell(self, order: Sequence[int], timeout_seconds: float) -> int | None:
        """The first bucket in `order` with a token, now or within the time."""
        with anyio.move_on_after(timeout_seconds):
            while True:
                for number in order:
                    if self._buckets[number].has_token:
                        self._buckets[number].has_token = False
                        return number
                await self._rung.wait()
        return None

    @asynccontextmanager
    async def bell(self) -> AsyncIterator[DueBell]:
        await anyio.lowlevel.checkpoint()
        yield _MemoryBell(self)

    @asynccontextmanager
    async def mail(self, worker: str) -> AsyncIterator[AsyncIterator[str | None]]:
        async with self._listen(f"mail:{worker}") as listener:
            yield Mail(listener)

    @asynccontextmanager
    async def follow_feed(self, owner: str) -> AsyncIterator[AsyncIterator[str | None]]:
        async with self._listen(f"feed:{owner}") as listener:
            yield Mail(listener)

    @asynccontextmanager
    async def follow(self, chat_id: str, at_once: AtOnce | None = None) -> AsyncIterator[AsyncIterator[Notice]]:
        async with self._listen(f"log:{chat_id}") as listener:
            yield Notices(chat_id, listener, at_once)

    @asynccontextmanager
    async def _listen(self, channel: str) -> AsyncIterator[Listener]:
        await anyio.lowlevel.checkpoint()
        listener = self._switchboard.join(channel)
        try:
            yield listener
        finally:
            self._switchboard.leave(channel, listener)

    async def watchers(self, chat_id: str) -> int:
        """One process, so one or none."""
        await anyio.lowlevel.checkpoint()
        return int(self._switchboard.is_watched(f"log:{chat_id}"))

    async def whisper(self, topic: str, payload: bytes) -> int:
        await anyio.lowlevel.checkpoint()
        return self._switchboard.publish(f"whisper:{topic}", payload)

    @asynccontextmanager
    async def overhear(self, topic: str) -> AsyncIterator[AsyncIterator[bytes | None]]:
        async with self._listen(f"whisper:{topic}") as listener:
            yield listener
