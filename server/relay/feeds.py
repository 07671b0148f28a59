"""Feeds: which chats an owner has and how each stands, kept for all who watch that owner's list in this process.

A feed follows the owner's channel first and lists second, so nothing falls between; afterwards it reads only what the
channel names. It does not know how readers show it (`api/feed.py`, `api/foreign.py` do). The rule: what a feed tells of
a chat was read after the news of it came; when news may have been missed, it lists again and every reader starts over.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import structlog
from anyio.abc import TaskGroup

from protocol.errors import Failed, Unavailable
from server.relay.hub import OPEN_SECONDS
from server.relay.subscriber import Subscriber
from server.store.port import ChatMeta, Store

__all__ = ["FEED_MAX_CHATS", "Feed", "FeedReader", "Feeds"]

_log = structlog.get_logger()

FEED_MAX_CHATS = 200
"""Chats of a snapshot: a page of the list at its largest. Older ones are asked for by page; their changes are told."""

COALESCE_SECONDS = 0.05
"""A chat's meta is read at most once in this time, however often it changes: faster than anybody reads a list."""

PENDING_MAX_CHATS = 200
"""Changed chats that wait to be read; with more than that, listing anew costs less."""

STORE_PAUSE_SECONDS = 0.5


class FeedReader(Protocol):
    """One open list."""

    @property
    def subscriber(self) -> Subscriber: ...

    def tell(self, changed: Sequence[ChatMeta], removed: Sequence[str]) -> None:
        """These chats are now like this; those left the list. Must not wait."""


class Feed:
    """The list of `owner`, for as long as `run` runs. `ready` is set once it is known, or `trouble` that it is not."""

    def __init__(self, owner: str, store: Store) -> None:
        self.owner = owner
        self.ready = anyio.Event()
        self.trouble: str | None = None
        self.readers: set[FeedReader] = set()
        self.has_more = False
        self.total_count = 0
        self._store = store
        self._chats: dict[str, ChatMeta] = {}
        self._pending: set[str] = set()
        self._must_list = False
        self._news = anyio.Event()

    @property
    def chats(self) -> list[ChatMeta]:
        """The newest, newest first, at most FEED_MAX_CHATS."""
        return sorted(self._chats.values(), key=lambda chat: (chat.last_active, chat.chat_id), reverse=True)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                async with self._store.follow_feed(self.owner) as news:
                    await self._list()
                    self.trouble = None
                    self.ready.set()
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._collect, news)
                        await self._tell_forever()
            except Failed:
                if not self.ready.is_set():
                    self.trouble = "store"
                    self.ready.set()
                await anyio.sleep(STORE_PAUSE_SECONDS)

    async def _collect(self, news: AsyncIterator[str | None]) -> None:
        async for chat_id in news:
            if chat_id is None or len(self._pending) >= PENDING_MAX_CHATS:
                self._must_list = True
            else:
                self._pending.add(chat_id)
            self._news.set()

    async def _tell_forever(self) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            try:
                if self._must_list:
                    await self._list()
                    for reader in list(self.readers):
                        reader.subscriber.resync("feed")
                else:
                    await self._read_pending()
            except Failed:
                self._must_list = True
                self._news.set()
                await anyio.sleep(STORE_PAUSE_SECONDS)
                continue
            await anyio.sleep(COALESCE_SECONDS)

    async def _list(self) -> None:
        self._must_list = False
        self._pending.clear()
        page = await self._store.list_chats(self.owner, FEED_MAX_CHATS)
        self._chats = {chat.chat_id: chat for chat in page.chats}
        self.has_more = page.next is not None
        await self._count()

    async def _read_pending(self) -> None:
        asked = sorted(self._pending)
        self._pending.clear()
        listed = await self._store.listed(self.owner, asked)
        changed = [chat for chat in listed if self._chats.get(chat.chat_id) != chat]
        self._chats.update({chat.chat_id: chat for chat in changed})
        left = set(asked) - {chat.chat_id for chat in listed}
        # One that stood beyond the newest may be on somebody's screen; one that was in no list is nobody's business.
        removed = sorted(chat_id for chat_id in left if chat_id in self._chats or self.has_more)
        for chat_id in removed:
            self._chats.pop(chat_id, None)
        for chat in self.chats[FEED_MAX_CHATS:]:
            del self._chats[chat.chat_id]
            self.has_more = True
        await self._count()
        if changed or removed:
            for reader in list(self.readers):
                reader.tell(changed, removed)

    async def _count(self) -> None:
        self.total_count = await self._store.count_chats(self.owner) if self.has_more else len(self._chats)


@dataclass(slots=True)
class _Open:
    """A feed, its own cancel scope, and how many need it."""

    feed: Feed
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    users: int = 0


class Feeds:
    """A feed per watched owner; the first reader opens it, the last one closes it. Runs inside
    `async with feeds.running()`. Heartbeats and goodbyes are the hub's business, which knows every connection."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[str, _Open] = {}
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Feeds"]:
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield self
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def feed(self, owner: str) -> AsyncIterator[Feed]:
        """The owner's feed, ready, for as long as it is needed.

        Raises:
            Unavailable: it did not become ready in time, or the server is going down.
        """
        if self._tasks is None:
            raise Unavailable("the server is going down; connect again")
        here = self._open.get(owner)
        if here is None:
            here = self._open[owner] = _Open(Feed(owner, self._store))
            self._tasks.start_soon(self._run, here)
        here.users += 1
        try:
            with anyio.move_on_after(OPEN_SECONDS):
                await here.feed.ready.wait()
            if not here.feed.ready.is_set() or here.feed.trouble is not None:
                raise Unavailable("the list cannot be read at the moment; try again")
            yield here.feed
        finally:
            here.users -= 1
            if here.users == 0:
                here.scope.cancel()
                if self._open.get(owner) is here:
                    del self._open[owner]

    async def _run(self, here: _Open) -> None:
        with here.scope:
            try:
                await here.feed.run()
            except Exception:  # the boundary of a feed: one owner's trouble must not end the others' streams
                _log.exception("feed.crashed")
            for reader in list(here.feed.readers):
                reader.subscriber.end("store")
        if self._open.get(here.feed.owner) is here:
            del self._open[here.feed.owner]
