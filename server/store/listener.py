"""One reader's queue on the store's channels: bounded, never blocking who publishes, honest about what it lost.

It knows neither Redis nor what a payload means. `channels.py` and `memory.py` fill it. The rule: whoever may have
missed something reads None, and compares the head.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

__all__ = ["QUEUE_MAX_MESSAGES", "Listener"]

QUEUE_MAX_MESSAGES = 1_024
QUEUE_MAX_BYTES = 4 * 1_024 * 1_024
"""What a listener may leave unread: 20 s of a fast chat. Reached: all is dropped and it is told that it missed some."""


class Listener:
    """The messages of a few channels, in order; None where some may be missing. For one reader."""

    def __init__(self, channels: Sequence[bytes]) -> None:
        self.channels = tuple(channels)
        self.unconfirmed = set(channels)
        self.ready = asyncio.Event()
        self.has_missed = False
        self.dropped_count = 0
        self._queue: deque[bytes | None] = deque()
        self._queue_bytes = 0
        self._news = asyncio.Event()

    def __aiter__(self) -> "Listener":
        return self

    async def __anext__(self) -> bytes | None:
        while not self._queue:
            self._news.clear()
            await self._news.wait()
        payload = self._queue.popleft()
        if payload is not None:
            self._queue_bytes -= len(payload)
        return payload

    def offer(self, payload: bytes | None) -> None:
        """Never waits: a publisher does not know its readers."""
        size = 0 if payload is None else len(payload)
        if len(self._queue) >= QUEUE_MAX_MESSAGES or self._queue_bytes + size > QUEUE_MAX_BYTES:
            self.dropped_count += len(self._queue) + 1
            self._queue.clear()
            self._queue_bytes = size = 0
            payload = None
        self._queue.append(payload)
        self._queue_bytes += size
        self._news.set()

    def confirm(self, channel: bytes) -> None:
        self.unconfirmed.discard(channel)
        if self.unconfirmed:
            return
        if self.has_missed:
            self.has_missed = False
            self.offer(None)
        self.ready.set()

    def lose(self) -> None:
        """The connection is gone. Who was not ready yet has missed nothing that was promised."""
        self.unconfirmed = set(self.channels)
        self.has_missed = self.has_missed or self.ready.is_set()
