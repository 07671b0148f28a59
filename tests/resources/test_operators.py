"""Operators are told of a store that would evict chats or is nearly full, and of the bound on open files.

The messages about the store come from a real store; `doctor` and a starting process print the same sentences.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest
import redis

from tests.resources.measures import DEADLINE_SECONDS, file_size_limit
from tests.support.server import run_command, start
from tests.support.store import StoreServer, running_store
from threadcast.http.server import OTHER_FILES
from threadcast.store.redis.health import StoreHealth
from threadcast.store.redis.store import RedisStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreServer]:
    with running_store(tmp_path / "store") as server:
        yield server


def doctor(store: StoreServer, directory: Path) -> str:
    return run_command("doctor", directory=directory, store_url=store.url)


async def test_a_store_that_would_evict_chats_is_warned_of_by_doctor_and_at_the_start(
    store: StoreServer, tmp_path: Path
) -> None:
    assert "eviction" not in doctor(store, tmp_path)
    with redis.Redis.from_url(store.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    said = doctor(store, tmp_path)
    assert "note  store" in said
    assert "eviction policy is allkeys-lru" in said and "Set maxmemory-policy noeviction" in said
    with start("web", "--port", "0", log=tmp_path / "log", environment={"REDIS_URL": store.url}) as web:
        await web.ready()
        assert "store.advice" in web.log_text() and "allkeys-lru" in web.log_text()


async def test_a_store_that_is_nearly_full_or_whose_disk_fails_says_what_to_do(store: StoreServer) -> None:
    async with RedisStore(store.url) as opened:
        assert [text for text in await opened.advice() if "Set maxmemory to half" not in text] == []
        with redis.Redis.from_url(store.url) as client:
            client.config_set("maxmemory", "1gb")
            assert await opened.advice() == []
            client.config_set("maxmemory", "1")
            (full,) = await opened.health()
            assert full.maxmemory_bytes == 1 and "Raise maxmemory, or delete chats" in full.warnings[0]
            client.config_set("maxmemory", "0")
            client.config_set("appendonly", "yes")

            async def disk_fails() -> bool:
                return (await opened.health())[0].disk_fails

            with anyio.fail_after(DEADLINE_SECONDS):
                while client.info("persistence")["aof_rewrite_in_progress"]:
                    await anyio.sleep(0.02)
            with file_size_limit(store.pid, 1), anyio.fail_after(DEADLINE_SECONDS):
                while not await disk_fails():
                    with suppress(redis.RedisError):
                        client.set("k", "v")
                    await anyio.sleep(0.05)
                assert "free space there" in (await opened.advice())[-1]


def test_what_a_hosted_store_does_not_tell_is_no_trouble() -> None:
    assert StoreHealth.of({}).warnings == []
    assert StoreHealth.of({"maxmemory_policy": "noeviction", "maxmemory": "x"}).warnings == []
    assert "thrown away 3 keys" in StoreHealth.of({"evicted_keys": "3"}).warnings[0]


@pytest.mark.parametrize("connections_max", [100, 1_000_000])
async def test_a_server_may_open_as_many_files_as_its_connections_need(
    store: StoreServer, tmp_path: Path, connections_max: int
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard < 2_000:
        pytest.skip("this user's hard bound on open files tells nothing")
    environment = {"REDIS_URL": store.url, "THREADCAST_LIMITS__CONNECTIONS_MAX": str(connections_max)}
    with _soft_bound(256), start("web", "--port", "0", log=tmp_path / "log", environment=environment) as web:
        await web.ready()
        soft, _ = resource.prlimit(web.pid, resource.RLIMIT_NOFILE)
        assert soft == min(connections_max + OTHER_FILES, hard)
        assert "connections.bounded" not in web.log_text(), "at a usual start it is no news"


@contextmanager
def _soft_bound(count: int) -> Iterator[None]:
    """Set this process's soft bound on open files, which children inherit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
