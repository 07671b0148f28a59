"""Over a slow connection, large commands and answers get the time that they need, and small commands do not wait for
them."""

import time
from collections.abc import AsyncIterator
from contextlib import suppress

import anyio
import pytest

from tests.integration.store_fixtures import CHAT, WAIT_SECONDS, fresh_url
from tests.torture.proxy import Proxy
from threadcast.store.embedded.server_process import ServerProcess
from threadcast.store.ports import BlobOutcome, BlobPut
from threadcast.store.redis.connection import COMMAND_TIMEOUT_SECONDS
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.blobs import Blob
from threadcast_protocol.wire.errors import Unavailable

pytestmark = pytest.mark.anyio

BYTES_PER_SECOND = 3_000_000
LARGE_BYTES = 10_000_000
"""Sending this many bytes takes 3.3 s on this connection, more than a small command may take; receiving them takes as
long."""

LARGE = BlobPut(chat_id=CHAT, owner="ann", blob=Blob("a" * 64, "x/y", b"x" * LARGE_BYTES), ttl_seconds=60)


@pytest.fixture
async def line(valkey_server: ServerProcess) -> AsyncIterator[Proxy]:
    async with Proxy("test > store", target=valkey_server.path) as proxy:
        yield proxy


@pytest.fixture
async def far_store(valkey_server: ServerProcess, line: Proxy) -> AsyncIterator[RedisStore]:
    database = fresh_url(valkey_server).rpartition("=")[2]
    async with RedisStore(f"redis://127.0.0.1:{line.port}/{database}") as store:
        yield store


async def test_a_large_command_and_a_large_answer_have_the_time_that_they_take(
    far_store: RedisStore, line: Proxy
) -> None:
    line.throttle(BYTES_PER_SECOND, WAIT_SECONDS)
    began = time.monotonic()
    assert await far_store.put_blob(LARGE) is BlobOutcome.KEPT
    sent = time.monotonic()
    assert await far_store.get_blob(CHAT, "ann", LARGE.blob.hash) == LARGE.blob
    assert min(sent - began, time.monotonic() - sent) > COMMAND_TIMEOUT_SECONDS, "else this proves nothing"


async def test_beside_large_commands_small_ones_go_their_way(far_store: RedisStore, line: Proxy) -> None:
    line.throttle(BYTES_PER_SECOND, WAIT_SECONDS)
    is_done = False

    async def put() -> None:
        nonlocal is_done
        assert await far_store.put_blob(LARGE) is BlobOutcome.KEPT
        is_done = True

    async with anyio.create_task_group() as tasks:
        for _ in range(2):  # all lanes that large commands may use
            tasks.start_soon(put)
        answered = 0
        while answered < 20:
            await anyio.sleep(0.05)
            with suppress(Unavailable):  # on a busy machine any connection may take 2 s
                await far_store.now_ms()
                answered += 1
        assert not is_done


async def test_a_large_answer_that_stops_on_its_way_is_not_waited_for(far_store: RedisStore, line: Proxy) -> None:
    await far_store.put_blob(LARGE)
    line.throttle(BYTES_PER_SECOND, WAIT_SECONDS)
    line_is_dead = anyio.Event()

    async def die() -> None:
        await anyio.sleep(1)
        line.swallow(WAIT_SECONDS)
        line_is_dead.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(die)
        with anyio.fail_after(WAIT_SECONDS), pytest.raises(Unavailable):
            await far_store.get_blob(CHAT, "ann", LARGE.blob.hash)
        assert line_is_dead.is_set()
