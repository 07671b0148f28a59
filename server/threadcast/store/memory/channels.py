"""Implements the bells, inbox signals, log channels and pub/sub topics of the in-memory store, like
`redis/channels.py`.

`MemoryStore` inherits from `MemoryChannels`. A listener receives everything that is published after it has subscribed;
`interrupt` simulates a lost connection.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel

from threadcast.store.memory.records import Bucket
from threadcast.store.ports import AtOnce, DueBell, LogMessage, Messages, WorkerSignals
from threadcast.store.redis.keys import BUCKETS
from threadcast.store.redis.listener import Listener
from threadcast.store.redis.log_messages import InboxSignals, ListenedSignals, LogMessages

__all__ = ["MemoryChannels"]


class _Switchboard:
    """Keeps the listeners of each channel by name. `publish` returns the number of listeners, like Redis's PUBLISH."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Listener]] = {}

    def join(self, channel: str, woken: Callable[[], None] | None) -> Listener:
        listener = Listener((channel.encode(),), woken)
        self.connect(channel, listener)
        return listener

    def connect(self, channel: str, listener: Listener) -> None:
        self._listeners.setdefault(channel, []).append(listener)
        listener.confirm(channel.encode())

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
        for channel, listeners in self._listeners.items():
            for listener in listeners:
                listener.lose((channel.encode(),))
                listener.confirm(channel.encode())


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
    """Notifies listeners for `MemoryStore`."""

    def __init__(self) -> None:
        self._buckets = [Bucket() for _ in range(BUCKETS)]
        self._switchboard = _Switchboard()
        self._rung = anyio.Event()

    def interrupt(self) -> None:
        """Simulate lost connections that are rebuilt at once: every listener reads None, because messages may be
        missing."""
        self._switchboard.interrupt()

    def ring(self, bucket: int) -> None:
        self._buckets[bucket].has_token = True
        self._rung.set()
        self._rung = anyio.Event()

    async def pop_bell(self, order: Sequence[int], timeout_seconds: float) -> int | None:
        """Wait up to `timeout_seconds` for a token. Returns the first bucket in `order` with a token, or None if no
        bucket has a token in time."""
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
    async def inbox_signals(self, worker: str) -> AsyncIterator[WorkerSignals]:
        async with self._listen(f"mail:{worker}") as listener:
            yield ListenedSignals(listener, listener.channels * BUCKETS)

    @asynccontextmanager
    async def follow_feed(
        self, owner: str, woken: Callable[[], None] | None = None
    ) -> AsyncIterator[Messages[str | None]]:
        async with self._listen(f"feed:{owner}", woken) as listener:
            yield InboxSignals(listener)

    @asynccontextmanager
    async def follow(
        self, chat_id: str, at_once: AtOnce | None = None, woken: Callable[[], None] | None = None
    ) -> AsyncIterator[Messages[LogMessage]]:
        async with self._listen(f"log:{chat_id}", woken) as listener:
            yield LogMessages(chat_id, listener, at_once)

    @asynccontextmanager
    async def _listen(self, channel: str, woken: Callable[[], None] | None = None) -> AsyncIterator[Listener]:
        await anyio.lowlevel.checkpoint()
        listener = self._switchboard.join(channel, woken)
        try:
            yield listener
        finally:
            self._switchboard.leave(channel, listener)

    async def watchers(self, chat_id: str) -> int:
        """Return 1 when the chat is followed, else 0, because this is the only process."""
        await anyio.lowlevel.checkpoint()
        return int(self._switchboard.is_watched(f"log:{chat_id}"))

    async def publish(self, topic: str, payload: bytes) -> int:
        await anyio.lowlevel.checkpoint()
        return self._switchboard.publish(f"whisper:{topic}", payload)

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncIterator[AsyncIterator[bytes | None]]:
        async with self._listen(f"whisper:{topic}") as listener:
            yield listener
