"""Who reads a chat's events, each at their own pace.

The stream never waits for a reader. Each has a queue of its own with a bound; when it is full, it is dropped and the
reader gets a snapshot of what now is in its place, as the server does with slow readers (PROTOCOL §4). The rule: what a
reader is given is always a snapshot, and then every event after it.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Self, TypeAlias
from weakref import WeakSet

import anyio

from protocol.events import Snapshot
from threadcast.connection import Connection
from threadcast.errors import ThreadcastError
from threadcast.reading import ChatEvent

__all__ = ["QUEUE_MAX_COUNT", "ChatItem", "Events", "Listeners"]

QUEUE_MAX_COUNT = 1_000
"""Events that one reader may lag behind: some 10 s of a fast answer, at most a few MB."""

ChatItem: TypeAlias = ChatEvent | Connection


class Events(AsyncIterator[ChatItem]):
    """One reader's events; `async for` over it. `drops` counts how often it was too slow."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self.drops = 0
        self._snapshot = snapshot
        self._queue: deque[ChatItem] = deque()
        self._wrong: ThreadcastError | None = None
        self._changed = anyio.Event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChatItem:
        """The next one.

        Raises:
            ThreadcastError: the chat's stream has ended for good; after all that came before.
        """
        while not self._queue:
            if self._wrong is not None:
                raise self._wrong
            await self._changed.wait()
        return self._queue.popleft()

    def put(self, item: ChatItem) -> None:
        if len(self._queue) >= QUEUE_MAX_COUNT and not isinstance(item, Connection):
            self._queue.clear()
            self.drops += 1
            item = self._snapshot()
        if isinstance(item, Connection) and self._queue and isinstance(self._queue[-1], Connection):
            self._queue[-1] = item  # only the last word on the connection counts, so these need no bound
        else:
            self._queue.append(item)
        self._tell()

    def end(self, wrong: ThreadcastError) -> None:
        self._wrong = wrong
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


class Listeners:
    """All readers of one chat. A reader that nobody holds any more is forgotten by itself."""

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
