"""Queues the messages of the store's channels for one reader. The queue is bounded, and reports lost messages.

`channels.py` and the in-memory store fill the queue, and never wait for the reader. A reader that may have missed
messages reads None, and then compares the head.

A reader that can often handle a message at once, without waiting, registers a callback with `first_ask`. With a
callback no task is woken. If each chat has one reader, waking the task costs more than handling the message.
"""

import math
import time
from collections.abc import Callable, Collection, Sequence

from threadcast.base.lean_event import LeanEvent
from threadcast.store.ports import AtOnce, LogMessage

__all__ = ["QUEUE_MAX_MESSAGES", "Listener"]

QUEUE_MAX_MESSAGES = 1_024
QUEUE_MAX_BYTES = 4 * 1_024 * 1_024
"""The maximum number and the maximum bytes of unread messages: 20 s of a fast chat. Beyond either bound, all messages
in the queue are dropped and the reader reads None."""


class Listener:
    """Iterates over the messages of a few channels in order, with None where messages may be missing. A listener has
    one reader. `woken` is called whenever a message is queued."""

    __slots__ = (
        "_has_arrived",
        "_missed",
        "_parse",
        "_queue",
        "_queue_bytes",
        "_woken",
        "at_once",
        "channels",
        "dropped_count",
        "ready",
        "unconfirmed",
        "whole_since",
    )

    def __init__(self, channels: Sequence[bytes], woken: Callable[[], None] | None = None) -> None:
        self.channels = tuple(channels)
        self.unconfirmed = set(channels)
        self.whole_since = -math.inf
        """The time since which no message was missed, in seconds of the monotonic clock: the last confirmation of a
        channel. In a new process the time may be before the start of the process, see `Channels._seconds_before`."""
        self.ready = LeanEvent()
        self.dropped_count = 0
        self._missed: list[set[bytes]] = []  # each set: channels lost together and not confirmed again
        self._queue: list[bytes | None] = []  # not a deque: an empty deque takes 760 bytes
        self._queue_bytes = 0
        self._has_arrived = LeanEvent()
        self.at_once: AtOnce | None = None
        """Handles messages while the queue is empty, including messages that `log.py` passes on without the channel."""
        self._parse: Callable[[bytes], LogMessage] | None = None
        self._woken = woken

    @property
    def is_empty(self) -> bool:
        """Whether the queue is empty, so that the reader would have to wait for a message."""
        return not self._queue

    def first_ask(self, at_once: AtOnce, parse: Callable[[bytes], LogMessage]) -> None:
        """Register the callbacks `at_once` and `parse`, which must not raise. While the queue is empty, each message is
        parsed and passed to `at_once`. A message for which `at_once` returns False is queued."""
        self.at_once, self._parse = at_once, parse

    def __aiter__(self) -> "Listener":
        return self

    async def __anext__(self) -> bytes | None:
        while not self._queue:
            self._has_arrived.clear()
            await self._has_arrived.wait()
        payload = self._queue.pop(0)
        if payload is not None:
            self._queue_bytes -= len(payload)
        return payload

    def offer(self, payload: bytes | None) -> None:
        """Queue a payload, or drop the queue when it is full. Never waits, so that a slow reader cannot delay the
        publisher."""
        if self.at_once is not None and payload is not None and not self._queue:
            assert self._parse is not None
            if self.at_once(self._parse(payload)):
                return
        size = 0 if payload is None else len(payload)
        if len(self._queue) >= QUEUE_MAX_MESSAGES or self._queue_bytes + size > QUEUE_MAX_BYTES:
            self.dropped_count += len(self._queue) + 1
            self._queue.clear()
            self._queue_bytes = size = 0
            payload = None
        self._queue.append(payload)
        self._queue_bytes += size
        self._has_arrived.set()
        if self._woken is not None:
            self._woken()

    def confirm(self, channel: bytes, seconds_before: float = 0.0) -> None:
        """Record that the server has confirmed this channel. The channel counts as confirmed since `seconds_before`
        seconds ago. When all channels that were lost together are confirmed again, the reader reads None."""
        if channel in self.unconfirmed:
            self.unconfirmed.discard(channel)
            self.whole_since = max(self.whole_since, time.monotonic() - seconds_before)
        for lost in self._missed:
            lost.discard(channel)
        if not all(self._missed):
            self._missed = [lost for lost in self._missed if lost]
            self.offer(None)
        if not self.unconfirmed:
            self.ready.set()

    def lose(self, channels: Collection[bytes]) -> None:
        """Record that a connection with these channels is lost. A reader does not read None for this loss if its
        listener was not ready yet, because messages are promised only to a ready listener."""
        mine = {channel for channel in self.channels if channel in channels}
        self.unconfirmed |= mine
        if self.ready.is_set() and mine:
            self._missed = [lost for lost in (each - mine for each in self._missed) if lost]
            self._missed.append(mine)

    def go_on(self) -> None:
        """Make the listener ready before all channels are confirmed. The unconfirmed channels count as lost, so that
        the reader reads None when they are confirmed."""
        self.ready.set()
        self.lose(frozenset(self.unconfirmed))
