"""A feed in one process: coalescing, possibly missed messages, slow readers, an unreachable store."""

import json
from collections import Counter
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.integration.store_fixtures import entry, owned
from threadcast.api.feed import ChatsView, ViewReader
from threadcast.base.telemetry import Metrics
from threadcast.fanout import feeds as feeds_module
from threadcast.fanout.connection import ReaderConnection
from threadcast.fanout.feeds import Feed, Feeds
from threadcast.fanout.subscriber import Subscriber
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import ChatMeta, ChatPage, ListCursor
from threadcast_protocol.framing.sse import EventFrame, FrameParser
from threadcast_protocol.wire.errors import Unavailable
from threadcast_protocol.wire.messages import JsonObject

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 30.0


class CountingStore(MemoryStore):
    """`calls` counts the feed's calls; while `is_away` is set, the store refuses them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.is_away = False
        self._heads: dict[str, str] = {}

    async def list_chats(self, owner: str, limit: int, after: ListCursor | None = None) -> ChatPage:
        self._ask("list")
        return await super().list_chats(owner, limit, after)

    async def listed(self, owner: str, chat_ids: Sequence[str]) -> list[ChatMeta]:
        self._ask("listed")
        return await super().listed(owner, chat_ids)

    def _ask(self, call: str) -> None:
        self.calls[call] += 1
        if self.is_away:
            raise Unavailable("away")

    async def change(self, chat_id: str, title: str) -> None:
        """Create a chat of ann's by its first change."""
        if chat_id not in self._heads:
            self._heads[chat_id] = (await owned(self, chat_id=chat_id)).head
        request = entry(self._heads[chat_id], chat_id=chat_id, meta=(("title", title),))
        await self.append(request)
        self._heads[chat_id] = request.head


class Screen:
    """A reader: the frames that it received, and the titles that it shows."""

    def __init__(self) -> None:
        self.frames: list[JsonObject] = []
        self.titles: dict[str, str] = {}
        self.is_blocked = False
        self._freed = anyio.Event()
        self._parser = FrameParser()
        self._changed = anyio.Event()

    async def send(self, message: MutableMapping[str, Any]) -> None:  # Any: ASGI's own type
        while self.is_blocked:
            await self._freed.wait()
        for frame in self._parser.feed(message["body"]):
            if isinstance(frame, EventFrame):
                self._take(json.loads(frame.data))
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _take(self, body: JsonObject) -> None:
        expected = 0 if body["type"] == "feed_snapshot" else int(self.frames[-1]["seq"]) + 1
        assert int(body["seq"]) == expected
        self.frames.append(body)
        match body["type"]:
            case "feed_snapshot":
                self.titles = {chat["id"]: chat["title"] for chat in body["chats"]}
            case "chat_updated":
                self.titles[body["chat"]["id"]] = body["chat"]["title"]
            case "chat_removed":
                del self.titles[body["chat_id"]]

    def free(self) -> None:
        self.is_blocked = False
        self._freed.set()

    async def shows(self, titles: dict[str, str]) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            while self.titles != titles:
                await self._changed.wait()


@asynccontextmanager
async def watching(feeds: Feeds, owner: str = "ann", buffer_max_bytes: int = 262_144) -> AsyncIterator[Screen]:
    """Subscribe as the endpoint does, without HTTP, and wait for the snapshot."""
    screen = Screen()
    async with feeds.feed(owner) as feed, anyio.create_task_group() as tasks:
        reader = ViewReader(ChatsView(feed))
        connection = ReaderConnection(
            screen.send,
            tasks,
            Metrics(),
            principal_id=owner,
            abort=lambda: None,
            buffer_max_bytes=buffer_max_bytes,
        )
        reader.subscriber = Subscriber(connection, reader, "", is_one_of_many=False)
        feed.readers.add(reader)
        reader.subscriber.start_with_snapshot()
        with anyio.fail_after(DEADLINE_SECONDS):
            while not screen.frames:
                await anyio.lowlevel.checkpoint()
        yield screen
        feed.readers.discard(reader)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def running(store: MemoryStore) -> AsyncIterator[Feeds]:
    feeds = Feeds(store)
    async with feeds.running():
        yield feeds


async def test_a_burst_of_changes_reads_each_chat_once_and_shows_the_last() -> None:
    store = CountingStore()
    async with running(store) as feeds, watching(feeds) as screen:
        for number in range(100):
            await store.change("c1", f"title {number}")
            await store.change("c2", f"other {number}")
        await screen.shows({"c1": "title 99", "c2": "other 99"})
    assert store.calls["listed"] <= 3
    assert store.calls["list"] == 1


async def test_readers_of_one_owner_share_a_feed_and_other_owners_have_their_own() -> None:
    store = CountingStore()
    await store.change("c1", "x")
    async with running(store) as feeds, watching(feeds) as one, watching(feeds) as two, watching(feeds, "bob") as bob:
        assert store.calls["list"] == 2
        await store.change("c1", "y")
        await one.shows({"c1": "y"})
        await two.shows({"c1": "y"})
        assert (bob.titles, len(bob.frames)) == ({}, 1)


async def test_news_that_may_have_been_missed_bring_a_new_snapshot() -> None:
    store = CountingStore()
    async with running(store) as feeds, watching(feeds) as screen:
        await store.change("c1", "x")
        await screen.shows({"c1": "x"})
        store.interrupt()
        await store.change("c2", "y")
        await screen.shows({"c1": "x", "c2": "y"})
        assert [frame["type"] for frame in screen.frames] == ["feed_snapshot", "chat_updated", "feed_snapshot"]


async def test_more_changes_than_are_kept_bring_a_new_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds_module, "PENDING_MAX_CHATS", 3)
    store = CountingStore()
    names = [f"c{number}" for number in range(10)]
    async with running(store) as feeds, watching(feeds) as screen:
        for name in names:
            await store.change(name, name)
        await screen.shows({name: name for name in names})
        assert screen.frames[-1]["type"] == "feed_snapshot"


async def test_beyond_its_size_a_feed_drops_the_oldest_and_still_tells_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds_module, "FEED_MAX_CHATS", 2)
    store = CountingStore()
    for name in ("c1", "c2", "c3"):
        await store.change(name, name)
    async with running(store) as feeds, watching(feeds) as screen:
        assert (len(screen.titles), screen.frames[0]["has_more"]) == (2, True)
        (oldest,) = {"c1", "c2", "c3"} - set(screen.titles)
        shown = dict(screen.titles)
        await anyio.sleep(0.005)  # the list is ordered by milliseconds
        await store.change(oldest, "again")
        await screen.shows({**shown, oldest: "again"})
        async with watching(feeds) as late:
            assert oldest in late.titles
            assert (len(late.titles), late.frames[0]["has_more"]) == (2, True)
        (fallen,) = set(screen.titles) - set(late.titles)
        await store.delete(fallen, "ann", "n1")
        await screen.shows({name: title for name, title in screen.titles.items() if name != fallen})


async def test_a_slow_reader_loses_its_queue_and_gets_a_snapshot_while_others_go_on() -> None:
    store = CountingStore()
    async with running(store) as feeds, watching(feeds, buffer_max_bytes=100) as slow, watching(feeds) as quick:
        slow.is_blocked = True
        for number in range(4):
            await store.change("c1", f"title {number}")
            await quick.shows({"c1": f"title {number}"})
        slow.free()
        await slow.shows({"c1": "title 3"})
        assert slow.frames[-1]["type"] == "feed_snapshot"
        await store.change("c1", "after")
        await slow.shows({"c1": "after"})


async def test_while_the_store_is_away_a_feed_waits_and_then_shows_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds_module, "STORE_PAUSE_SECONDS", 0.01)
    store = CountingStore()
    async with running(store) as feeds, watching(feeds) as screen:
        store.is_away = True
        await store.change("c1", "x")
        with anyio.fail_after(DEADLINE_SECONDS):
            while store.calls.total() < 4:
                await anyio.lowlevel.checkpoint()
        with pytest.raises(Unavailable):
            async with feeds.feed("bob"):
                pass
        store.is_away = False
        await screen.shows({"c1": "x"})


async def test_a_feed_that_nobody_reads_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = CountingStore()
    opened: list[Feed] = []
    async with running(store) as feeds:
        async with feeds.feed("ann") as feed:
            opened.append(feed)
        async with feeds.feed("ann") as feed:
            opened.append(feed)
        assert opened[0] is not opened[1]
    with pytest.raises(Unavailable):
        async with feeds.feed("ann"):
            pass
