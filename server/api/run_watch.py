"""A chat's events from now on, as one bounded iterator for one reader that needs events and not bytes.

It follows the log's channel before it asks for the head, so nothing falls between; an entry counts iff its `before` is
the head string held. After a gap, a rebuilt channel or a long silence it reads the log and goes on from where it
stood, or says honestly that it cannot (DISPATCH §6). It knows nothing of runs; `oneshot.py` calls it. The one rule:
every event once, in order, or `Unavailable`.
"""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec

from protocol.codec import decode_events
from protocol.entries import FORMAT_VERSION, RawEntry
from protocol.errors import NotFound, Unavailable
from protocol.events import Event
from protocol.ids import EntryId, Head
from protocol.reducer import Gap
from server.store.port import Notice, Store

__all__ = ["RunWatch", "watch_chat"]

CHECK_EVERY_SECONDS = 5.0
"""Silence after which the head is compared with the store's: pub/sub may lose a message, and a run is open here."""

CATCH_UP_SECONDS = 30.0
"""How long the store may stay away in the middle of a run; clients of one-shot wires give up after about a minute."""

PAUSE_SECONDS = 0.5

_LOST = "a part of the answer was lost on the way here; the run goes on, read the chat later"


@asynccontextmanager
async def watch_chat(store: Store, chat_id: str) -> AsyncIterator["RunWatch"]:
    """Everything appended after this was entered. Raises Unavailable."""
    async with store.follow(chat_id) as notices:
        (head,) = await store.heads([chat_id])
        yield RunWatch(store, chat_id, notices, head)


class RunWatch:
    """Made by `watch_chat`. The queue between is the store's own, which is bounded and says when it dropped."""

    def __init__(self, store: Store, chat_id: str, notices: AsyncIterator[Notice], head: str) -> None:
        self._store = store
        self._chat_id = chat_id
        self._notices = notices
        self._head = head
        self._checked_at = time.monotonic()

    async def next(self, within_seconds: float) -> Sequence[Event]:
        """The events of the next entry, of several after a gap, or none when the time is up.

        Raises:
            NotFound: the chat was deleted.
            Unavailable: what came after the last event cannot be read any more.
        """
        try:
            return await self._next(within_seconds)
        except Gap as lost:
            raise Unavailable(str(lost)) from lost

    async def _next(self, within_seconds: float) -> Sequence[Event]:
        notice: Notice | None = None
        with anyio.move_on_after(within_seconds):
            notice = await anext(self._notices)
        if notice is None:
            if time.monotonic() - self._checked_at < CHECK_EVERY_SECONDS:
                return []
            return await self._catch_up()
        self._checked_at = time.monotonic()
        if notice.kind == "deleted":
            raise NotFound("the chat was deleted")
        if notice.head and Head.parse(notice.head).entry_id <= self._entry_id:
            return []
        entry = notice.entry
        if notice.kind == "large" and notice.before == self._head:
            with suppress(Unavailable):  # then it is caught up with, which waits for the store
                entry = await self._store.read_entry(self._chat_id, Head.parse(notice.head).entry_id)
        if entry is not None and entry.before == self._head:
            return self._take([entry])
        return await self._catch_up()

    @property
    def _entry_id(self) -> EntryId:
        return Head.parse(self._head).entry_id if self._head else EntryId(0, 0)

    async def _catch_up(self) -> Sequence[Event]:
        """What the log holds after the head we have, waiting while the store is away. Raises Unavailable."""
        try:
            with anyio.fail_after(CATCH_UP_SECONDS):
                while True:
                    try:
                        return await self._read_on()
                    except Unavailable:
                        await anyio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            raise Unavailable("the store does not answer; the run goes on, read the chat later") from None

    async def _read_on(self) -> Sequence[Event]:
        (head,) = await self._store.heads([self._chat_id])
        self._checked_at = time.monotonic()
        if head == self._head:
            return []
        entries: list[RawEntry] = []
        while head and (entries[-1].head if entries else self._head) != head:
            after = entries[-1].entry_id if entries else self._entry_id
            page = await self._store.read_log(self._chat_id, Head.parse(head).entry_id, after=after)
            if not page:
                break
            entries += page
        if not entries or entries[-1].head != head:
            raise Gap(_LOST)
        return self._take(entries)

    def _take(self, entries: Sequence[RawEntry]) -> Sequence[Event]:
        events: list[Event] = []
        for entry in entries:
            if entry.version > FORMAT_VERSION or entry.before != self._head:
                raise Gap(_LOST)
            try:
                events += decode_events(entry.events)
            except msgspec.DecodeError:
                raise Gap(_LOST) from None
            self._head = entry.head
        return events
