"""One reader's queue on the store's channels: bounded, never blocking who publishes, honest about what it lost.

It knows neither Redis nor what a payload means. `channels.py` and `memory.py` fill it. The rule: whoever may have
missed something reads None, and compares the head.

Who can often do with a message at once, without waiting, may say so (`first_ask`): then no task is woken for it, which
costs a process with one reader a chat more than what it does with the message.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence

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
        self.dropped_count = 0
        self._missed: list[set[bytes]] = []  # what was lost together, until all of it is confirmed anew
        self._queue: deque[bytes | None] = deque()
        self._queue_bytes = 0
        self._news = asyncio.Event()
        self._at_once: Callable[[bytes], bool] | None = None

    def first_ask(self, at_once: Callable[[bytes], bool]) -> None:
        """Offer it each message that nothing is queued before; what it refuses (False) is queued. It must not raise."""
        self._at_once = at_once

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
        if self._at_once is not None and payload is not None and not self._queue and self._at_once(payload):
            return
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
        """The server has this channel. Once that is so of all that were lost together, the reader is told."""
        self.unconfirmed.discard(channel)
        for lost in self._missed:
            lost.discard(channel)
        if not all(self._missed):
            self._missed = [lost for lost in self._missed if lost]
            self.offer(None)
        if not self.unconfirmed:
            self.ready.set()

    def lose(self, channels: Collection[bytes]) -> None:
        """A connection is gone, with these. Who was not ready yet has missed nothing that was promised."""
        mine = {channel for channel in self.channels if channel in channels}
        self.unconfirmed |= mine
        if self.ready.is_set() and mine:
            self._missed = [lost for lost in (each - mine for each in self._missed) if lost]
            self._missed.append(mine)

    def go_on(self) -> None:
        """Read what is confirmed; the rest counts as lost, so that its coming is told."""
        self.ready.set()
        self.lose(frozenset(self.unconfirmed))
