"""A store notices that its server is no longer the primary, even if the store only subscribes, and sends no write
twice. These tests run the store alone, in this process, over real servers."""

import time
from collections.abc import AsyncIterator

import anyio
import pytest

from tests.bars import bar_seconds
from tests.failover.gates import Pair
from tests.integration.store_fixtures import CHAT, command
from tests.ports import free_port
from threadcast.store.ports import LogMessage, Posted, PostOutcome, Standing
from threadcast.store.redis.store import RedisStore
from threadcast.store.topology import route
from threadcast_protocol.wire.errors import Unavailable

pytestmark = pytest.mark.anyio

both_servers = pytest.mark.parametrize("pair", ["valkey", "redis7"], indirect=True)
"""Runs a test on both kinds of server, where their behaviour may differ; the other tests use one kind."""

NOTICED_SECONDS = 2.0
"""Maximum seconds until readers notice, including readers of a quiet chat (the watch of `route.py`)."""

TIMEOUT_SECONDS = 30.0


async def posted(store: RedisStore, request_id: str) -> Posted:
    """Post a command until the store accepts it."""
    with anyio.fail_after(TIMEOUT_SECONDS):
        while True:
            try:
                return await store.post(command(request_id))
            except Unavailable:
                await anyio.sleep(0.02)


async def reconnected(log_messages: AsyncIterator[LogMessage], seconds: float) -> None:
    """Wait until the channels are subscribed again: earlier messages may be missing."""
    with anyio.fail_after(seconds):
        assert (await anext(log_messages)).kind == "reconnected"


async def test_a_reader_of_a_quiet_chat_leaves_a_demoted_server_without_anybody_writing(pair: Pair) -> None:
    async with RedisStore(pair.url) as store, store.follow(CHAT) as log_messages:
        await pair.replicated()
        # The old primary keeps its connections and becomes the replica of a server that does not exist, so it would
        # stay silent for ever.
        pair.primary.ask("REPLICAOF", "127.0.0.1", free_port())
        pair.promote()
        since = time.monotonic()
        await reconnected(log_messages, bar_seconds(NOTICED_SECONDS))
        print(f"\ndemoted without a kill: a quiet reader noticed within {time.monotonic() - since:.2f} s")
        async with RedisStore(pair.replica.url) as elsewhere:
            await elsewhere.claim(elsewhere.bucket_of(CHAT), "w", 1, 1_000)
            await elsewhere.post(command("r1"))
            assert await elsewhere.claim(elsewhere.bucket_of(CHAT), "w", 1, 1_000)
            fence = await elsewhere.take(CHAT, "w", "wake")
        with anyio.fail_after(bar_seconds(NOTICED_SECONDS)):
            log_message = await anext(log_messages)
        assert log_message.head == fence.head


@both_servers
async def test_a_write_that_a_replica_refuses_is_the_last_one_it_gets(pair: Pair) -> None:
    async with RedisStore(pair.url) as store:
        await store.post(command("r1"))
        await pair.replicated()
        pair.primary.ask("REPLICAOF", "127.0.0.1", free_port())
        pair.promote()
        with pytest.raises(Unavailable, match="read-only replica"):
            await store.post(command("r2"))
        assert (await store.post(command("r2"))).outcome is PostOutcome.ACCEPTED, "the next one goes to the new primary"
        assert (await store.post(command("r1"))).outcome is PostOutcome.ACCEPTED, "the same nonce: known there as well"
        assert len(await store.read_inbox(CHAT, 10)) == 2


async def test_a_replica_at_the_address_is_refused_until_it_is_promoted(pair: Pair) -> None:
    async with RedisStore(pair.url) as store, store.follow(CHAT) as log_messages:
        await store.post(command("r1"))
        await pair.replicated()
        pair.primary.kill()
        pair.address.point_at(pair.replica.port)
        with anyio.fail_after(TIMEOUT_SECONDS):
            while True:
                with pytest.raises(Unavailable) as refused:
                    await store.meta(CHAT)
                if "read-only replica" in refused.value.message:
                    break
                await anyio.sleep(0.02)
        pair.promote()
        await posted(store, "r2")
        await reconnected(log_messages, bar_seconds(NOTICED_SECONDS))


async def test_an_address_that_moved_is_found_although_the_old_primary_goes_on(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "PROBE_SECONDS", 0.5)
    monkeypatch.setattr(route, "WATCH_SECONDS", 0.2)
    async with RedisStore(pair.url) as store, store.follow(CHAT) as log_messages:
        await store.post(command("r1"))
        await pair.replicated()
        pair.promote()
        await reconnected(log_messages, bar_seconds(NOTICED_SECONDS))
        await posted(store, "r2")
    (inbox,) = pair.replica.client.scan_iter("*:inbox")
    assert (pair.primary.client.xlen(inbox), pair.replica.client.xlen(inbox)) == (1, 2), (
        "the second went to who has the address now"
    )


async def test_a_user_who_may_not_ask_for_role_and_info_can_use_the_store(pair: Pair) -> None:
    pair.primary.ask("ACL", "SETUSER", "plain", "on", ">word", "~*", "&*", "+@all", "-role", "-info")
    url = pair.url.replace("//", "//plain:word@")
    async with RedisStore(url) as store:
        assert (await store.post(command("r1"))).outcome is PostOutcome.ACCEPTED
        assert await store.ping() == Standing()


@both_servers
async def test_a_primary_that_wants_replicas_refuses_while_it_has_none(pair: Pair) -> None:
    """The server's own setting bounds the loss of a failover; the store reports the server's refusal."""
    async with RedisStore(pair.url) as store:
        pair.primary.ask("CONFIG", "SET", "min-replicas-to-write", 1)
        with anyio.fail_after(TIMEOUT_SECONDS):
            while pair.primary.replication("min_slaves_good_slaves") != 1:  # replicas acknowledge once a second
                await anyio.sleep(0.02)
        assert (await store.post(command("r1"))).outcome is PostOutcome.ACCEPTED
        pair.replica.kill()
        with anyio.fail_after(TIMEOUT_SECONDS):
            while pair.primary.replication("connected_slaves") != 0:
                await anyio.sleep(0.02)
        with pytest.raises(Unavailable, match="too few replicas"):
            await store.post(command("r2"))
        with pytest.raises(Unavailable, match="too few replicas"):
            await store.ping()


async def test_a_server_that_comes_back_is_found_by_everybody(pair: Pair) -> None:
    """Waiting bell reads, lanes and channels all move from the old server to the new one."""
    async with RedisStore(pair.url) as store, store.follow(CHAT) as log_messages, store.bell() as bell:
        assert await bell.wait(0.01) is None
        await pair.replicated()
        pair.primary.ask("REPLICAOF", "127.0.0.1", free_port())
        pair.promote()
        await reconnected(log_messages, bar_seconds(NOTICED_SECONDS))
        assert (await posted(store, "r1")).outcome is PostOutcome.ACCEPTED
        with anyio.fail_after(TIMEOUT_SECONDS):
            while True:
                try:
                    rang = await bell.wait(1.0)
                except Unavailable:
                    continue
                if rang is not None:
                    break
        assert rang == store.bucket_of(CHAT)
