"""The store's memory is full (maxmemory): writes are refused, reads and commands that free memory still work.

The tests give the store a limit below the size of its data. Deletes, leaving a chat and keeping a lease are flagged
`allow-oom`, because they free memory or need none. Every command that stores data is refused until an operator adds
memory or a chat is deleted.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
import pytest
import redis

from tests.resources.measures import DEADLINE_SECONDS, eventually, metric, ready
from tests.support.reader import watching
from tests.support.server import Process, command, start, user_message
from tests.support.store import StoreServer, running_store
from threadcast.store.redis.keys import BUCKETS, Keys

pytestmark = pytest.mark.anyio

ESSAY = {"model": "demo/essay?words=300&rate=100"}
LEASE_MS = 1_000
FAST = {
    "THREADCAST_LIMITS__LEASE_SECONDS": str(LEASE_MS / 1_000),
    "THREADCAST_LIMITS__BEAT_SECONDS": "0.3",
    "THREADCAST_LIMITS__SWEEP_SECONDS": "0.2",
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreServer]:
    with running_store(tmp_path / "store") as server:
        yield server


@asynccontextmanager
async def serving(store: StoreServer, tmp_path: Path) -> AsyncIterator[Process]:
    environment = {"REDIS_URL": store.url, **FAST}
    with start("serve", "--port", "0", log=tmp_path / "log", environment=environment) as process:
        yield await process.ready()


@contextmanager
def memory_full(store: StoreServer) -> Iterator[None]:
    with redis.Redis.from_url(store.url) as client:
        client.config_set("maxmemory", "1")
        try:
            yield
        finally:
            client.config_set("maxmemory", "0")


async def test_a_full_memory_refuses_commands_with_a_sentence_and_goes_on_by_itself(
    store: StoreServer, tmp_path: Path
) -> None:
    async with serving(store, tmp_path) as server, watching(server.url, "c1") as watcher:
        await command(server.url, "c1", user_message("a", "write", params=ESSAY))
        await watcher.until(lambda w: w.types().count("stream_delta") > 2)
        with memory_full(store):
            said = await ready(server.url, 503)
            assert "memory is full" in said
            refused = await command(server.url, "c1", user_message("b", "hello?"))
            assert (refused.status_code, refused.json()["status"]) == (503, "unavailable")
            assert "memory is full" in refused.json()["error"]
            async with watching(server.url, "c1") as late:  # reading goes on
                assert late.messages[0] == ("user", "write")
            async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
                assert (await client.get(f"{server.url}/v1/chats")).json()["items"]

            async def store_refused() -> bool:
                return await metric(server.url, 'store_errors_total{kind="append"}') > 0

            await eventually(store_refused)
            first = _lease_end_ms(store, "c1")

            async def lease_is_kept() -> bool:
                return _lease_end_ms(store, "c1") > first + LEASE_MS

            await eventually(lease_is_kept)
        await ready(server.url, 200)
        answer = await command(server.url, "c1", user_message("b", "hello?", params={"model": "demo/echo"}))
        assert answer.status_code == 202
        await watcher.at_rest(2)
        assert len(watcher.messages[1][1].split()) == 300
        assert watcher.snapshots == 1


def _lease_end_ms(store: StoreServer, chat_id: str) -> float:
    keys = Keys(BUCKETS)
    with redis.Redis.from_url(store.url) as client:
        return float(client.zscore(keys.due(keys.bucket_of(chat_id)), chat_id) or 0)


async def test_chats_can_be_deleted_and_left_while_memory_is_full(store: StoreServer, tmp_path: Path) -> None:
    async with serving(store, tmp_path) as server, httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client:
        for name in ("rest", "runs"):
            async with watching(server.url, name) as watcher:
                await command(server.url, name, user_message("a", "hello", params={"model": "demo/echo"}))
                await watcher.at_rest()
        async with watching(server.url, "runs") as watcher:
            await command(server.url, "runs", user_message("b", "write", params=ESSAY))
            await watcher.until(lambda w: w.types().count("stream_delta") > 2)
            with memory_full(store):
                await ready(server.url, 503)
                for name in ("rest", "runs"):
                    deleted = await client.delete(f"{server.url}/v1/chats/{name}")
                    assert deleted.status_code in (200, 204), deleted.text
                assert (await client.get(f"{server.url}/v1/chats")).json()["items"] == []

                async def is_left() -> bool:
                    return await metric(server.url, "chats_active") == 0

                await eventually(is_left)


async def test_a_server_starts_and_serves_readers_while_memory_is_full(store: StoreServer, tmp_path: Path) -> None:
    with ExitStack() as stack:
        async with serving(store, tmp_path) as server, watching(server.url, "c1") as watcher:
            await command(server.url, "c1", user_message("a", "hello", params={"model": "demo/echo"}))
            await watcher.at_rest()
        stack.enter_context(memory_full(store))
        async with serving(store, tmp_path) as again, watching(again.url, "c1") as reader:
            assert reader.snapshot == watcher.snapshot
            assert "memory is full" in await ready(again.url, 503)
