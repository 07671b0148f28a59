"""From its own subscription a worker learns since when it can trust the subscriptions of other workers. A new worker
trusts them since the start of the server; after a promotion or an interruption, a worker trusts them only from then on
(DISPATCH §5, rule 2)."""

import time

import anyio
import pytest

from tests.failover.gates import Pair
from threadcast.store.redis.store import RedisStore

pytestmark = pytest.mark.anyio

both_servers = pytest.mark.parametrize("pair", ["valkey", "redis7"], indirect=True)

UP_SECONDS = 2
WAIT_SECONDS = 30.0


async def until_up(pair: Pair) -> None:
    with anyio.fail_after(WAIT_SECONDS):
        while pair.primary.client.info("server")["uptime_in_seconds"] < UP_SECONDS:
            await anyio.sleep(0.05)


@both_servers
async def test_a_new_worker_counts_from_the_start_of_its_server_and_an_interrupted_one_from_now(pair: Pair) -> None:
    await until_up(pair)
    began_at = time.monotonic()
    async with RedisStore(pair.url) as store, store.inbox_signals("w1") as signals:
        since = signals.heard_since(0)
        assert since is not None and since <= began_at - UP_SECONDS + 1
        kicked_at = time.monotonic()
        pair.primary.ask("CLIENT", "KILL", "TYPE", "pubsub")
        with anyio.fail_after(WAIT_SECONDS):
            assert await anext(signals) is None
        since = signals.heard_since(0)
        assert since is not None and since >= kicked_at


@both_servers
async def test_on_a_server_that_was_promoted_a_new_worker_counts_from_now(pair: Pair) -> None:
    await until_up(pair)
    await pair.replicated()
    pair.replica.ask("REPLICAOF", "NO", "ONE")
    began_at = time.monotonic()
    async with RedisStore(pair.replica.url) as store, store.inbox_signals("w1") as signals:
        since = signals.heard_since(0)
        assert since is not None and since >= began_at
