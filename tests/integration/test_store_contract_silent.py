"""The contract of every store: a dead owner is recognized because no process listens to its inbox signals any more."""

from contextlib import AsyncExitStack

import anyio
import pytest

from tests.integration.store_fixtures import CHAT, LEASE_MS, WAIT_SECONDS, claim, command, eventually, owned
from threadcast.store.bounds import END_LEASES_BATCH
from threadcast.store.ports import Beat, Claimed, EndedLeases, Store
from threadcast.store.redis.store import RedisStore

pytestmark = pytest.mark.anyio


async def end_all(store: Store, owner: str, *, worker: str = "w2") -> int:
    """End the leases of `owner` in the bucket of CHAT; returns the number of chats."""
    count, cursor = 0, "0"
    while cursor:
        ended = await store.end_leases(store.bucket_of(CHAT), worker, owner, cursor)
        count, cursor = count + ended.count, ended.cursor
    return count


async def silent(store: Store, worker: str = "w2") -> list[str]:
    return await store.silent_owners(store.bucket_of(CHAT), worker)


async def test_an_owner_without_a_listener_is_silent_and_its_chats_can_be_claimed_at_once(store: Store) -> None:
    async with store.inbox_signals("w2"), store.bell() as bell:
        async with store.inbox_signals("w1"):
            await owned(store)
            assert await bell.wait(WAIT_SECONDS) == store.bucket_of(CHAT)
            assert await silent(store) == []
            assert await end_all(store, "w1") == 0

        async def is_silent() -> bool:
            return await silent(store) == ["w1"]

        await eventually(is_silent)
        assert await claim(store, "w2") == []
        assert await end_all(store, "w1") == 1
        assert await bell.wait(WAIT_SECONDS) == store.bucket_of(CHAT)
        (claimed,) = await claim(store, "w2")
        assert (claimed.chat_id, claimed.previous, claimed.has_begun) == (CHAT, "w1", True)
        assert 0 < claimed.lease_left_ms <= LEASE_MS
        assert await end_all(store, "w1") == 0
        assert await store.beat("w1", LEASE_MS, [CHAT]) == {CHAT: Beat.LOST}


async def test_a_worker_that_does_not_listen_itself_finds_nobody_silent(store: Store) -> None:
    await owned(store)
    assert await silent(store) == []
    assert await end_all(store, "w1") == 0
    assert await claim(store, "w2") == []


async def test_only_owners_with_leases_are_looked_at(store: Store) -> None:
    async with store.inbox_signals("w2"):
        assert await silent(store) == []
        await owned(store, "w1", lease_ms=1)
        await anyio.sleep(0.02)
        assert await silent(store) == [], "its chats are due anyway"
        await claim(store, "w2")
        assert await silent(store) == []


async def test_a_beat_and_a_claim_before_its_time_make_an_owner(store: Store) -> None:
    await owned(store, "w1", lease_ms=1)
    async with store.inbox_signals("w2"):
        await store.beat("w1", LEASE_MS, [CHAT])
        assert await silent(store) == ["w1"]
        await store.handover(CHAT, "w1", 60_000)
        assert await store.claim_chat(CHAT, "w3", LEASE_MS)
        assert sorted(await silent(store)) == ["w1", "w3"]
        assert await end_all(store, "w1") == 0
        assert await end_all(store, "w3") == 1
        (claimed,) = await claim(store, "w2")
        assert (claimed.previous, claimed.has_begun) == ("w3", False)


async def test_a_chat_that_its_former_owner_only_claimed_was_not_begun(store: Store) -> None:
    await store.post(command())
    await claim(store, "w1")
    async with store.inbox_signals("w2"):
        await end_all(store, "w1")
        (first,) = await claim(store, "w2")
        assert (first.previous, first.has_begun) == ("w1", False)
        await store.take(CHAT, "w2", "wake")
    async with store.inbox_signals("w3"):

        async def has_ended() -> bool:
            return await end_all(store, "w2", worker="w3") == 1

        await eventually(has_ended)
        (second,) = await claim(store, "w3")
        assert (second.previous, second.has_begun) == ("w2", True)


async def test_the_leases_of_many_chats_end_in_slices_and_no_other_owner_is_touched(store: Store) -> None:
    names = (f"c{n}" for n in range(100_000))
    chats = [name for name in names if store.bucket_of(name) == store.bucket_of(CHAT)][: 4 * END_LEASES_BATCH]
    async with AsyncExitStack() as heard:
        await heard.enter_async_context(store.inbox_signals("w2"))
        await heard.enter_async_context(store.inbox_signals("w9"))
        for number, chat_id in enumerate(chats):
            await store.post(command(chat_id=chat_id))
            assert await claim(store, "w9" if number % 8 == 0 else "w1", CHAT) == [Claimed(chat_id, "")]
        most, cursor, count = 0, "0", 0
        while cursor:
            ended = await store.end_leases(store.bucket_of(CHAT), "w2", "w1", cursor)
            cursor, count, most = ended.cursor, count + ended.count, max(most, ended.count)
        assert count == len(chats) * 7 // 8
        assert type(store).__name__ == "MemoryStore" or most < 3 * END_LEASES_BATCH
        due = await store.claim(store.bucket_of(CHAT), "w2", len(chats), LEASE_MS)
        assert {each.previous for each in due} == {"w1"}


async def test_one_worker_at_a_time_ends_the_leases_of_an_owner(valkey_store: RedisStore) -> None:
    bucket = valkey_store.bucket_of(CHAT)
    async with valkey_store.inbox_signals("w2"), valkey_store.inbox_signals("w3"):
        await owned(valkey_store)
        assert await valkey_store.end_leases(bucket, "w2", "w1", "0") == EndedLeases(1, "")
        await claim(valkey_store, "w1")
        assert await valkey_store.end_leases(bucket, "w3", "w1", "0") == EndedLeases(0, "")
        assert await valkey_store.end_leases(bucket, "w2", "w1", "0") == EndedLeases(1, "")
