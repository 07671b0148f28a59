"""The channels of a list of chats on one server: one channel for the list, and during a deploy the channels of version
0.1.0 (decision 0049)."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
import redis

from tests.integration.store_fixtures import WAIT_SECONDS
from tests.integration.test_store_contract_lists import listed_chat
from tests.support.store import StoreServer, running_store
from threadcast.store.embedded.embedded import PERSISTENT
from threadcast.store.redis.keys import Keys
from threadcast.store.redis.store import RedisStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[StoreServer]:
    with running_store(tmp_path, PERSISTENT) as server:
        yield server


@pytest.fixture
async def own_store(own_server: StoreServer) -> AsyncIterator[RedisStore]:
    async with RedisStore(own_server.url) as store:
        yield store


OWNER = "ann:feed:list:*"
"""An owner whose name looks like the name of a channel and like a pattern."""


def _heard(client: redis.Redis) -> redis.client.PubSub:
    return client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call, no-any-return] # redis-py


@contextmanager
def older_feed(client: redis.Redis, keys: Keys, owner: str) -> Iterator[redis.client.PubSub]:
    """A feed of version 0.1.0: it listens to the channel of every bucket."""
    with _heard(client) as heard:
        channels = keys.feed_channels(owner)
        heard.subscribe(*channels)
        for _ in channels:
            assert heard.get_message(ignore_subscribe_messages=True, timeout=WAIT_SECONDS) is None
        yield heard


async def test_a_list_costs_the_store_one_subscription_and_a_process_one_pattern(
    own_server: StoreServer, own_store: RedisStore
) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        async with own_store.follow_feed("ann"), own_store.follow_feed("ann"), own_store.follow_feed("bob"):
            assert len(client.pubsub_channels()) == 2
            assert client.pubsub_numpat() == 1


async def test_a_process_that_follows_no_list_has_no_pattern(own_server: StoreServer, own_store: RedisStore) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        async with own_store.follow("c1"), own_store.inbox_signals("w1"):
            assert client.pubsub_numpat() == 0


async def test_a_feed_hears_processes_of_the_version_before_in_every_bucket(
    own_server: StoreServer, own_store: RedisStore
) -> None:
    keys = Keys(own_store.buckets)
    with redis.Redis.from_url(own_server.url) as client:
        async with own_store.follow_feed(OWNER) as mine, own_store.follow_feed("bob") as others:
            for number in range(own_store.buckets):
                client.publish(keys.chat(f"chat{number}").feed_channel(OWNER), f"chat{number}")
            client.publish(keys.chat("bobs").feed_channel("bob"), "bobs")
            with anyio.fail_after(WAIT_SECONDS):
                assert [await anext(mine) for _ in range(own_store.buckets)] == [
                    f"chat{number}" for number in range(own_store.buckets)
                ]
                assert await anext(others) == "bobs"


async def test_a_feed_that_lost_its_connection_hears_the_version_before_again(
    own_server: StoreServer, own_store: RedisStore
) -> None:
    async with own_store.follow_feed("ann") as mine:
        own_server.kill()
        own_server.start()
        with anyio.fail_after(WAIT_SECONDS):
            assert await anext(mine) is None
        with redis.Redis.from_url(own_server.url) as client:
            assert client.publish(Keys(own_store.buckets).chat("c1").feed_channel("ann"), "c1") == 1
        with anyio.fail_after(WAIT_SECONDS):
            assert await anext(mine) == "c1"


async def test_a_feed_of_the_version_before_hears_changes_and_deletes_of_this_one(
    own_server: StoreServer, own_store: RedisStore
) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        with older_feed(client, Keys(own_store.buckets), "ann") as heard:
            for number in range(20):
                await listed_chat(own_store, f"chat{number}")
            await own_store.delete("chat3", "ann", "n1")
            told = [heard.get_message(timeout=WAIT_SECONDS) for _ in range(21)]
        names = [message["data"].decode() for message in told if message is not None]
        assert sorted(names[:-1]) == sorted(f"chat{number}" for number in range(20))
        assert names[-1] == "chat3"


async def test_without_such_a_feed_nothing_is_published_for_it(own_server: StoreServer, own_store: RedisStore) -> None:
    with redis.Redis.from_url(own_server.url) as client, _heard(client) as heard:
        heard.psubscribe("*:feed:*", "*:list:*")
        for _ in range(2):
            heard.get_message(ignore_subscribe_messages=True, timeout=WAIT_SECONDS)
        await listed_chat(own_store, "c1")
        await own_store.delete("c1", "ann", "n1")
        told = [heard.get_message(timeout=WAIT_SECONDS) for _ in range(2)]
        list_channel = Keys(own_store.buckets).list_channel("ann")
        assert [message and message["channel"] for message in told] == [list_channel, list_channel]


async def test_an_acl_that_refuses_the_pattern_costs_no_feed(own_server: StoreServer) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        client.acl_setuser(
            "app", enabled=True, nopass=True, categories=["+@all"], keys=["*"], channels=["tc:*"], reset=True
        )
        url = own_server.url.replace("://", "://app:x@", 1)
        async with RedisStore(url) as store, store.follow_feed("ann") as mine:
            await listed_chat(store, "c1")
            with anyio.fail_after(WAIT_SECONDS):
                assert await anext(mine) == "c1"
            assert client.pubsub_numpat() == 0
