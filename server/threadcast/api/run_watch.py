"""Follows the future events of a chat for a reader inside this process, and returns every event once, in order.

After a gap, a reconnected channel or a long silence, `RunWatch` reads the log and continues at its position
(`log_tail.py`). If it cannot continue, it raises Unavailable.
"""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec

from threadcast.chat.entries import FORMAT_VERSION, RawEntry
from threadcast.log_tail import Missed, entries_after, next_entry
from threadcast.store.load import load_folded
from threadcast.store.ports import Log, LogMessage
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.framing.codec import decode_events
from threadcast_protocol.wire.errors import NotFound, Unavailable
from threadcast_protocol.wire.events import Event

__all__ = ["RunWatch", "join_chat", "watch_chat"]

CHECK_EVERY_SECONDS = 5.0
"""Seconds of silence after which the watch compares its head with the store's head, because pub/sub may lose a
message."""

CATCH_UP_SECONDS = 30.0
"""Seconds that the store may be unreachable in the middle of a run; clients of one-shot endpoints give up after about a
minute."""

PAUSE_SECONDS = 0.5

_LOST = "a part of the answer was lost on the way here; the run goes on, read the chat later"


@asynccontextmanager
async def watch_chat(store: Log, chat_id: str) -> AsyncIterator["RunWatch"]:
    """Watch the entries that are appended from now on. Raises Unavailable."""
    async with store.follow(chat_id) as log_messages:
        (head,) = await store.heads([chat_id])
        yield RunWatch(store, chat_id, log_messages, head)


@asynccontextmanager
async def join_chat(store: Log, chat_id: str) -> AsyncIterator[tuple[ChatState, "RunWatch"]]:
    """Yield the present state of the chat, and a watch of the entries that follow it.

    Raises:
        NewerVersion, Gap: this process cannot read the log.
        Unavailable: the store does not answer.
    """
    async with store.follow(chat_id) as log_messages:
        state, _ = await load_folded(store, chat_id, with_facts=False)
        yield state, RunWatch(store, chat_id, log_messages, state.head)


class RunWatch:
    """Reads the events of one chat; made by `watch_chat`. Messages wait in the store's queue, which is bounded and
    reports dropped messages."""

    def __init__(self, store: Log, chat_id: str, log_messages: AsyncIterator[LogMessage], head: str) -> None:
        self._store = store
        self._chat_id = chat_id
        self._log_messages = log_messages
        self._head = head
        self._checked_at = time.monotonic()

    async def next(self, within_seconds: float) -> Sequence[Event]:
        """Return the events of the next entry, or of several entries after a gap; [] if `within_seconds` pass without
        an entry.

        Raises:
            NotFound: the chat was deleted.
            Unavailable: the events after the last returned event can no longer be read.
        """
        try:
            return await self._next(within_seconds)
        except Missed as missed:
            if missed.reason == "deleted":
                raise NotFound("the chat was deleted") from None
            raise Unavailable(_LOST) from None

    async def _next(self, within_seconds: float) -> Sequence[Event]:
        log_message: LogMessage | None = None
        with anyio.move_on_after(within_seconds):
            log_message = await anext(self._log_messages)
        if log_message is None:
            if time.monotonic() - self._checked_at < CHECK_EVERY_SECONDS:
                return []
            return await self._catch_up()
        self._checked_at = time.monotonic()
        try:
            entry = await next_entry(self._store, self._head, log_message)
        except Missed as missed:
            if missed.reason == "deleted":
                raise
        except Unavailable:
            pass  # reading on waits for the store
        else:
            return self._take([] if entry is None else [entry])
        return await self._catch_up()

    async def _catch_up(self) -> Sequence[Event]:
        """Return the events after the head, waiting while the store does not answer. Raises Missed, Unavailable."""
        with anyio.move_on_after(CATCH_UP_SECONDS):
            while True:
                with suppress(Unavailable):
                    entries = await entries_after(self._store, self._chat_id, self._head)
                    self._checked_at = time.monotonic()
                    return self._take(entries)
                await anyio.sleep(PAUSE_SECONDS)
        raise Unavailable("the store does not answer; the run goes on, read the chat later")

    def _take(self, entries: Sequence[RawEntry]) -> Sequence[Event]:
        """Return the events of entries that follow the head, and move the head."""
        events: list[Event] = []
        for entry in entries:
            if entry.version > FORMAT_VERSION:
                raise Missed("gap")
            try:
                events += decode_events(entry.events)
            except msgspec.DecodeError:
                raise Missed("gap") from None
            self._head = entry.head
        return events
