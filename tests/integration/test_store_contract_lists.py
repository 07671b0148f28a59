"""The contract of every store, 6: an owner's list in its order and pages, and the feed of its changes."""

import anyio
import pytest

from tests.integration.store_fixtures import CHAT, WAIT_SECONDS, command, entry, eventually, owned
from threadcast.store.bounds import EMPTY_CHAT_TTL_SECONDS
from threadcast.store.ports import ChatPage, ListCursor, Store, list_owner_of

pytestmark = pytest.mark.anyio


def ids(page: ChatPage) -> list[str]:
    return [meta.chat_id for meta in page.chats]


async def listed_chat(store: Store, chat_id: str) -> str:
    """Create a chat in ann's list; returns its head."""
    taken = await owned(store, chat_id=chat_id)
    await store.append(request := entry(taken.head, chat_id=chat_id, meta=(("title", chat_id),)))
    return request.head


async def test_append_keeps_the_meta_and_the_owners_list(store: Store) -> None:
    taken = await owned(store)
    assert await store.list_chats("ann", 10) == ChatPage([], None)
    fields = (("title", "Tea"), ("state", "generating"), ("message_count", "3"), ("queue", "2"), ("model", "m"))
    await store.append(entry(taken.head, meta=fields))
    (meta,) = (await store.list_chats("ann", 10)).chats
    assert meta == await store.meta(CHAT)
    assert (meta.title, meta.state, meta.message_count, meta.queue, meta.model) == ("Tea", "generating", 3, 2, "m")
    assert taken.time_ms <= meta.last_active
    assert ids(await store.list_chats("bob", 10)) == []
    assert (await store.count_chats("ann"), await store.count_chats("bob")) == (1, 0)
    assert await store.listed("ann", [CHAT, "never-was"]) == [meta]
    assert await store.listed("bob", [CHAT]) == []


async def test_list_is_newest_first_over_all_buckets_and_pages_by_place(store: Store) -> None:
    names = [f"chat{n}" for n in range(6)]
    for name in names:
        await listed_chat(store, name)
        last_ms = await store.now_ms()

        async def has_ticked(since_ms: int = last_ms) -> bool:
            return await store.now_ms() > since_ms + 1

        await eventually(has_ticked)
    first = await store.list_chats("ann", 4)
    assert first.next == ListCursor(first.chats[-1].last_active, "chat2")
    rest = await store.list_chats("ann", 4, first.next)
    assert ids(first) + ids(rest) == names[::-1]
    assert rest.next is None


async def test_chats_of_one_millisecond_are_neither_skipped_nor_repeated_at_a_pages_edge(store: Store) -> None:
    """Sixty chats are created as fast as the store can, so several share a millisecond; the list must have them all in
    three pages."""
    for n in range(60):
        await listed_chat(store, f"chat{n}")
    whole = await store.list_chats("ann", 100)
    assert len(whole.chats) == 60
    for size in (1, 7):
        found: list[str] = []
        page = await store.list_chats("ann", size)
        while True:
            found += ids(page)
            if page.next is None:
                break
            page = await store.list_chats("ann", size, page.next)
        assert found == ids(whole)


async def test_chat_that_expires_is_in_no_list(store: Store) -> None:
    head = await listed_chat(store, CHAT)
    assert ids(await store.list_chats("ann", 10)) == [CHAT]
    await store.append(entry(head, meta=(("title", "y"),), lifetime="expire", expire_seconds=EMPTY_CHAT_TTL_SECONDS))
    assert ids(await store.list_chats("ann", 10)) == []
    assert await store.listed("ann", [CHAT]) == []


async def test_the_feed_names_changed_and_deleted_chats_of_its_owner_in_every_bucket(store: Store) -> None:
    async with store.follow_feed("ann") as mine, store.follow_feed("bob") as others:
        for n in range(20):
            await listed_chat(store, f"chat{n}")
        with anyio.fail_after(WAIT_SECONDS):
            assert {await anext(mine) for _ in range(20)} == {f"chat{n}" for n in range(20)}
        await store.delete("chat3", "ann", "n1")
        with anyio.fail_after(WAIT_SECONDS):
            assert await anext(mine) == "chat3"
        assert await store.listed("ann", ["chat3", "chat4"]) == await store.listed("ann", ["chat4"])
        await store.post(command(chat_id="bobs", owner="bob"))
        await store.delete("bobs", "bob", "n2")
        with anyio.fail_after(WAIT_SECONDS):
            assert await anext(others) == "bobs"


async def test_an_append_that_leaves_the_meta_alone_is_no_news_for_the_feed(store: Store) -> None:
    async with store.follow_feed("ann") as feed:
        head = await listed_chat(store, CHAT)
        await store.append(request := entry(head))
        await store.append(entry(request.head, meta=(("title", "again"),)))
        await listed_chat(store, "last")
        with anyio.fail_after(WAIT_SECONDS):
            assert [await anext(feed) for _ in range(3)] == [CHAT, CHAT, "last"]


async def test_a_deleted_chat_says_since_when(store: Store) -> None:
    await listed_chat(store, CHAT)
    before_ms = await store.now_ms()
    await store.delete(CHAT, "ann", "n1")
    meta = await store.meta(CHAT)
    assert meta is not None
    assert meta.deleted
    assert before_ms <= meta.deleted_at <= await store.now_ms()


async def test_a_subchat_is_listed_under_its_parent_alone_and_in_no_feed(store: Store) -> None:
    await listed_chat(store, "parent")
    async with store.follow_feed("ann") as changed_ids:
        taken = await owned(store, chat_id="child")
        fields = (("title", "child"), ("parent", "parent"))
        await store.append(entry(taken.head, chat_id="child", meta=fields, parent="parent"))
        await listed_chat(store, "other")
        with anyio.fail_after(WAIT_SECONDS):
            assert await anext(aiter(changed_ids)) == "other"
    collector = list_owner_of("ann", "parent")
    assert sorted(ids(await store.list_chats("ann", 10))) == ["other", "parent"]
    assert ids(await store.list_chats(collector, 10)) == ["child"]
    assert (await store.count_chats("ann"), await store.count_chats(collector)) == (2, 1)
    assert await store.listed("ann", ["child"]) == []
    meta = await store.meta("child")
    assert meta is not None and meta.parent == "parent"
    assert await store.delete("child", "ann", "n")
    assert await store.count_chats(collector) == 0
