"""Entries that a process appends reach its own followers without the channel; other processes receive them through the
channel."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest
import redis
from anyio.lowlevel import checkpoint

from tests.integration.store_fixtures import CHAT, WAIT_SECONDS, entry, eventually, fresh_url, owned
from threadcast.store.embedded.server_process import ServerProcess
from threadcast.store.ports import Appended, Fenced, LogMessage
from threadcast.store.redis.store import RedisStore

TURNS_UNTIL_SENT = 3
"""Number of turns of the event loop within which an append is queued, and its lane wakes and sends the append. An
answer that arrives earlier does no harm here."""

pytestmark = pytest.mark.anyio


class Follower:
    """Takes log messages at once while `is_ready`, and keeps them."""

    def __init__(self) -> None:
        self.is_ready = True
        self.taken: list[LogMessage] = []

    def take(self, message: LogMessage) -> bool:
        if self.is_ready:
            self.taken.append(message)
        return self.is_ready

    async def has(self, count: int) -> None:
        async def look() -> bool:
            return len(self.taken) >= count

        await eventually(look)

    def heads(self) -> list[str]:
        return [message.head for message in self.taken]


@contextmanager
def publishes(url: str) -> Iterator[list[int]]:
    """Count the messages that scripts publish during the block. The yielded list holds the count after the block."""
    with redis.Redis.from_url(url) as other:

        def count() -> int:
            return int(other.info("commandstats").get("cmdstat_publish", {}).get("calls", 0))

        before, found = count(), [0]
        yield found
        found[0] = count() - before


async def test_an_entry_is_handed_over_before_its_append_returns_and_published_to_nobody_else(
    valkey_server: ServerProcess,
) -> None:
    url = fresh_url(valkey_server)
    follower = Follower()
    async with RedisStore(url) as store:
        taken = await owned(store)
        async with store.follow(CHAT, follower.take):
            request = entry(taken.head)
            with publishes(url) as published:
                assert await store.append(request) is Appended.OK
                assert follower.heads() == [request.head]
            assert published == [0]
        stored = await store.read_entry(CHAT, follower.taken[0].entry.entry_id)  # type: ignore[union-attr] # an entry
    assert follower.taken[0].entry == stored


async def test_an_entry_is_published_when_another_process_follows_and_each_follower_gets_it(
    valkey_server: ServerProcess,
) -> None:
    url = fresh_url(valkey_server)
    here, elsewhere = Follower(), Follower()
    async with RedisStore(url) as store, RedisStore(url) as other:
        taken = await owned(store)
        async with store.follow(CHAT, here.take), other.follow(CHAT, elsewhere.take):
            request = entry(taken.head)
            await store.append(request)
            await elsewhere.has(1)
            await here.has(2)
    assert elsewhere.heads() == [request.head]
    assert here.taken[0] == here.taken[1] == elsewhere.taken[0], "what is published later is the same message"


async def test_a_follower_that_cannot_take_an_entry_at_once_reads_it_in_order(valkey_server: ServerProcess) -> None:
    follower = Follower()
    async with RedisStore(fresh_url(valkey_server)) as store:
        taken = await owned(store)
        async with store.follow(CHAT, follower.take) as log_messages:
            follower.is_ready = False
            first = entry(taken.head)
            second = entry(first.head, digest="00000000000000bb", acks=b'[["r1",true,true]]')  # published
            third = entry(second.head, digest="00000000000000cc")
            for request in (first, second, third):
                assert await store.append(request) is Appended.OK
            with anyio.fail_after(WAIT_SECONDS):
                read = [(await anext(log_messages)).head for _ in range(3)]
    assert read == [first.head, second.head, third.head]
    assert follower.taken == []


async def test_after_an_append_whose_first_answer_was_lost_followers_compare_the_head(
    valkey_server: ServerProcess,
) -> None:
    follower = Follower()
    async with RedisStore(fresh_url(valkey_server)) as store:
        taken = await owned(store)
        async with store.follow(CHAT, follower.take) as log_messages:
            request = entry(taken.head)
            await store.append(request)
            assert await store.append(request) is Appended.DUP
            with anyio.fail_after(WAIT_SECONDS):
                assert (await anext(log_messages)).kind == "reconnected"
            with pytest.raises(Fenced):
                await store.append(entry(taken.head, digest="00000000000000bb"))
    assert follower.heads() == [request.head], "a refused entry is handed to nobody"


async def test_a_cancelled_append_hands_its_entry_over_all_the_same(valkey_server: ServerProcess) -> None:
    follower = Follower()
    async with RedisStore(fresh_url(valkey_server)) as store:
        taken = await owned(store)
        async with store.follow(CHAT, follower.take):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.append, entry(taken.head))
                for _ in range(TURNS_UNTIL_SENT):
                    await checkpoint()
                tasks.cancel_scope.cancel()
            await follower.has(1)
    assert follower.heads() == [entry(taken.head).head]
