"""Feeds: an owner's list of chats with their status, kept once for all readers of that list in this process.

A feed subscribes to the owner's channel before it reads the list, so that no change is missed; afterwards it reads only
the chats that the channel names. A chat's record is always read after the announcement of its change; when
announcements may have been missed, the feed reads the list again and every reader starts over.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import anyio
import structlog

from threadcast.fanout.connection import EndReason
from threadcast.fanout.shared import Followers
from threadcast.fanout.subscriber import Subscriber
from threadcast.store.ports import ChatMeta, Index
from threadcast_protocol.wire.errors import Failed

__all__ = ["FEED_MAX_CHATS", "Feed", "FeedReader", "Feeds"]

_log = structlog.get_logger()

FEED_MAX_CHATS = 200
"""Chats in a snapshot of a feed, which is the maximum page of the list. Clients read older chats page by page and
receive the changes of these chats from the feed."""

COALESCE_SECONDS = 0.05
"""Seconds within which a chat's meta is read at most once, however often the meta changes; people do not read a list
faster."""

PENDING_MAX_CHATS = 200
"""Maximum number of changed chats that wait to be read. With more of them, reading the whole list costs less."""

STORE_PAUSE_SECONDS = 0.5


class FeedReader(Protocol):
    """One open list."""

    @property
    def subscriber(self) -> Subscriber: ...

    def tell(self, changed: Sequence[ChatMeta], removed: Sequence[str]) -> None:
        """Send the changed chats and the ids of removed ones. Must not wait."""


class Feed:
    """The list of the chats of `owner`, kept up to date while `run` runs. `ready` is set once the list is read, or when
    `trouble` has the reason why it cannot be read."""

    def __init__(self, owner: str, store: Index) -> None:
        self.owner = owner
        self.ready = anyio.Event()
        self.trouble: EndReason | None = None
        self.readers: set[FeedReader] = set()
        self.has_more = False
        self.total_count = 0
        self._store = store
        self._chats: dict[str, ChatMeta] = {}
        self._pending: set[str] = set()
        self._must_list = False
        self._has_changed = anyio.Event()

    @property
    def chats(self) -> list[ChatMeta]:
        """Return at most FEED_MAX_CHATS chats, the newest first."""
        return sorted(self._chats.values(), key=lambda chat: (chat.last_active, chat.chat_id), reverse=True)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                async with self._store.follow_feed(self.owner) as changed_ids:
                    await self._list()
                    self.trouble = None
                    self.ready.set()
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._collect, changed_ids)
                        await self._tell_forever()
            except Failed:
                if not self.ready.is_set():
                    self.trouble = "store"
                    self.ready.set()
                await anyio.sleep(STORE_PAUSE_SECONDS)

    def refusal(self) -> str:
        """Return the error message for a reader that this feed cannot serve."""
        return "the list cannot be read at the moment; try again"

    def log_crash(self) -> None:
        """Log the exception that `run` has raised."""
        _log.exception("feed.crashed")

    def end_all(self, reason: EndReason) -> None:
        """End the streams of all readers."""
        for reader in list(self.readers):
            reader.subscriber.end(reason)

    async def _collect(self, changed_ids: AsyncIterator[str | None]) -> None:
        async for chat_id in changed_ids:
            if chat_id is None or len(self._pending) >= PENDING_MAX_CHATS:
                self._must_list = True
            else:
                self._pending.add(chat_id)
            self._has_changed.set()

    async def _tell_forever(self) -> None:
        while True:
            await self._has_changed.wait()
            self._has_changed = anyio.Event()
            try:
                if self._must_list:
                    await self._list()
                    for reader in list(self.readers):
                        reader.subscriber.resync("feed")
                else:
                    await self._read_pending()
            except Failed:
                self._must_list = True
                self._has_changed.set()
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
        # Report a missing chat if it was in the list, or if the list has older chats, which clients may have read.
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


class Feeds:
    """Keeps a feed for each watched owner: the first reader opens the feed, and the last one closes it. Feeds run
    inside `async with feeds.running()`. The hub sends the heartbeats of these connections and ends them at shutdown."""

    def __init__(self, store: Index) -> None:
        self._feeds = Followers(lambda owner: Feed(owner, store))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Feeds"]:
        async with anyio.create_task_group() as tasks:
            self._feeds.tasks = tasks
            try:
                yield self
            finally:
                self._feeds.tasks = None
                tasks.cancel_scope.cancel()

    def feed(self, owner: str) -> AbstractAsyncContextManager[Feed]:
        """Yield the owner's feed, ready to use, and keep it open during the block.

        Raises:
            Unavailable: the feed did not become ready in time, or the server is shutting down.
        """
        return self._feeds.use(owner)
