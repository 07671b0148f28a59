"""A feed is an owner's list of chats with their status, kept once for all readers of that list in this process.

A feed subscribes to the owner's channel before it reads the list, so that no change is missed. Afterwards the feed
reads only the chats whose changes the channel announces. A chat's record is always read after the announcement of its
change. When announcements may have been missed, the feed reads the list again, and every reader gets a new snapshot.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import anyio
import structlog

from threadcast.base.lean_event import LeanEvent
from threadcast.fanout.connection import EndReason
from threadcast.fanout.shared import Followers
from threadcast.fanout.subscriber import Subscriber
from threadcast.store.ports import ChatMeta, Index, Messages
from threadcast_protocol.wire.errors import Failed

__all__ = ["FEED_MAX_CHATS", "Feed", "FeedReader", "Feeds"]

_log = structlog.get_logger()

FEED_MAX_CHATS = 200
"""The maximum number of chats in a snapshot of a feed, which is also the maximum number of chats on a page of the list.
Clients read older chats page by page and receive the changes of these chats from the feed."""

COALESCE_SECONDS = 0.05
"""Seconds within which a chat's meta is read at most once, however often the meta changes. People do not read a list
faster."""

PENDING_MAX_CHATS = 200
"""The maximum number of changed chats that wait to be read. If more chats have changed, reading the whole list costs
less."""

STORE_PAUSE_SECONDS = 0.5


class FeedReader(Protocol):
    """A reader of a feed."""

    @property
    def subscriber(self) -> Subscriber: ...

    def tell(self, changed: Sequence[ChatMeta], removed: Sequence[str]) -> None:
        """Send the changed chats and the ids of removed ones. Must not wait."""


class Feed:
    """The list of the chats of `owner`, kept up to date until it is closed (`shared.py`). `ready` is set when the list
    has been read, or when the list cannot be read and `trouble` has the reason."""

    def __init__(self, owner: str, store: Index) -> None:
        self.owner = owner
        self.ready = LeanEvent()
        self.trouble: EndReason | None = None
        self.readers: set[FeedReader] = set()
        self.has_more = False
        self.total_count = 0
        self.wake: Callable[[], None] = _not_woken
        self._store = store
        self._chats: dict[str, ChatMeta] = {}
        self._pending: set[str] = set()
        self._must_list = False
        self._following: AbstractAsyncContextManager[Messages[str | None]] | None = None
        self._changed_ids: Messages[str | None] | None = None

    @property
    def chats(self) -> list[ChatMeta]:
        """Return at most FEED_MAX_CHATS chats, the newest first."""
        return sorted(self._chats.values(), key=lambda chat: (chat.last_active, chat.chat_id), reverse=True)

    async def run(self) -> bool:
        """Send all known changes to the readers. Errors of the store pause the feed. Returns True when no change is
        left to send."""
        while True:
            try:
                changed_ids = self._changed_ids or await self._open()
                while await self._collect(changed_ids):
                    await self._tell()
                    await anyio.sleep(COALESCE_SECONDS)
                return True
            except Failed:
                await self.close()
                if not self.ready.is_set():
                    self.trouble = "store"
                    self.ready.set()
                await anyio.sleep(STORE_PAUSE_SECONDS)

    async def close(self) -> None:
        """End the subscription."""
        following, self._following, self._changed_ids = self._following, None, None
        if following is not None:
            await following.__aexit__(None, None, None)

    async def _open(self) -> Messages[str | None]:
        following = self._store.follow_feed(self.owner, self.wake)
        changed_ids = await following.__aenter__()
        self._following, self._changed_ids = following, changed_ids
        await self._list()
        self.trouble = None
        if self.ready.is_set():  # changes may have been missed while the store did not answer
            self._resync()
        self.ready.set()
        return changed_ids

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

    async def _collect(self, changed_ids: Messages[str | None]) -> bool:
        """Read all announcements that have arrived. Returns whether there are changes to send."""
        while not changed_ids.is_empty:
            chat_id = await anext(changed_ids)
            if chat_id is None or len(self._pending) >= PENDING_MAX_CHATS:
                self._must_list = True
            else:
                self._pending.add(chat_id)
        return self._must_list or bool(self._pending)

    async def _tell(self) -> None:
        while True:
            try:
                if self._must_list:
                    await self._list()
                    self._resync()
                else:
                    await self._read_pending()
                return
            except Failed:
                self._must_list = True
                await anyio.sleep(STORE_PAUSE_SECONDS)

    def _resync(self) -> None:
        for reader in list(self.readers):
            reader.subscriber.resync("feed")

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


def _not_woken() -> None:
    return None


class Feeds:
    """Keeps a feed for each watched owner. The first reader opens the owner's feed, and the last reader closes it.
    Feeds run inside `async with feeds.running()`. The hub sends heartbeats on the connections of the readers, and ends
    these connections at shutdown."""

    def __init__(self, store: Index) -> None:
        self._feeds = Followers(lambda owner: Feed(owner, store))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Feeds"]:
        async with anyio.create_task_group() as tasks:
            try:
                async with self._feeds.running(tasks):
                    yield self
            finally:
                tasks.cancel_scope.cancel()

    def feed(self, owner: str) -> AbstractAsyncContextManager[Feed]:
        """Yield the owner's feed, ready to use, and keep it open during the block.

        Raises:
            Unavailable: the feed did not become ready in time, or the server is shutting down.
        """
        return self._feeds.use(owner)
