"""The readers of a chat's events. Each reader has its own bounded queue, and the stream never waits for a reader.

A full queue is replaced by a snapshot of the present state, as the server does for slow readers (PROTOCOL §4). Each
reader therefore gets a snapshot and then every event after the snapshot.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Self, TypeAlias
from weakref import WeakSet

from threadcast_client.changed import Changed
from threadcast_client.connection import Connection
from threadcast_client.errors import ThreadcastError
from threadcast_client.reading import ChatEvent
from threadcast_protocol.wire.events import Snapshot

__all__ = ["QUEUE_MAX_COUNT", "ChatItem", "Events", "Listeners"]

QUEUE_MAX_COUNT = 1_000
"""The number of events that one reader may lag behind: about 10 s of a fast answer, and at most a few MB."""

ChatItem: TypeAlias = ChatEvent | Connection


class Events(AsyncIterator[ChatItem]):
    """The events of one reader; use `async for`. `drops` counts how often its full queue was replaced by a snapshot."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self.drops = 0
        self._snapshot = snapshot
        self._queue: deque[ChatItem] = deque()
        self._wrong: ThreadcastError | None = None
        self._changed = Changed()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChatItem:
        """Wait for the next event.

        Raises:
            ThreadcastError: the chat's stream has ended for good, and all earlier events were read.
        """
        await self._changed.until(lambda: self._queue or self._wrong is not None)
        if not self._queue and self._wrong is not None:
            raise self._wrong
        return self._queue.popleft()

    def put(self, item: ChatItem) -> None:
        """Add an event. Of consecutive connection statuses only the last is kept."""
        if len(self._queue) >= QUEUE_MAX_COUNT and not isinstance(item, Connection):
            self._queue.clear()
            self.drops += 1
            item = self._snapshot()
        if isinstance(item, Connection) and self._queue and isinstance(self._queue[-1], Connection):
            self._queue[-1] = item  # only the last status matters, so the queue stays bounded
        else:
            self._queue.append(item)
        self._changed.tell()

    def end(self, wrong: ThreadcastError) -> None:
        """Raise an error in the reader after the events that were added before."""
        self._wrong = wrong
        self._changed.tell()


class Listeners:
    """All readers of one chat. A reader that the program no longer references is removed automatically."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._all: WeakSet[Events] = WeakSet()

    def new(self) -> Events:
        events = Events(self._snapshot)
        self._all.add(events)
        return events

    def put(self, item: ChatItem) -> None:
        for events in list(self._all):
            events.put(item)

    def end(self, wrong: ThreadcastError) -> None:
        for events in list(self._all):
            events.end(wrong)
