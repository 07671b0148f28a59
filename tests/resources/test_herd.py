"""Two thousand readers who come at once, and come back at once: each chat is read once for all, nobody waits.

A web process and a worker of their own. What the herd costs the store is counted by the store; what each of them holds
is folded as a client does it, and is the same for all.
"""

import time
from collections.abc import Awaitable
from pathlib import Path

import anyio
import httpx2
import pytest
import redis

from server.relay.connection import RETRY_MAX_MS, RETRY_MIN_MS
from tests.integration.harness import command, start, user_message, watching
from tests.patience import bar_seconds
from tests.ports import free_port
from tests.resources.houses import house
from tests.resources.measures import DEADLINE_SECONDS, metric
from tests.resources.readers import HerdReader, allow_open_files, close_all, fold_all, open_all

pytestmark = [pytest.mark.anyio, pytest.mark.slow(50)]

HERD = 2_000
HERD_CHATS = 4
LOADS_MAX = 60
"""Reads of a log while the herd comes in: for each chat one to open it and a few of the worker's own; never one a
reader."""

LIFE_SECONDS = 3.0
"""At most so long a probe waits for its answer, also while two thousand streams are opened."""


async def test_a_herd_of_2000_shares_the_store_ends_equal_and_comes_back_spread_out(tmp_path: Path) -> None:
    if allow_open_files(2 * HERD + 500) < HERD + 500:
        pytest.skip(f"this user may not open {HERD} files")
    async with house(tmp_path) as (stack, store, environment):
        client = stack.enter_context(redis.Redis.from_url(store.url))
        port = str(free_port())  # the same for both of its lives
        web = stack.enter_context(start("web", "--port", port, log=tmp_path / "web", environment=environment))
        await web.ready()
        chats = [f"herd-{number}" for number in range(HERD_CHATS)]
        for chat_id in chats:
            params = {"model": "demo/essay?words=400&rate=1"}
            await command(web.url, chat_id, user_message("a", "write slowly", params=params))
        herd = [HerdReader(chats[number % HERD_CHATS]) for number in range(HERD)]
        try:
            reads = _log_reads(client)
            begun = time.monotonic()
            lives = await _alive_while(web.url, open_all(web.url, herd))
            cpu = await metric(web.url, "process_cpu_seconds_total")
            print(
                f"{HERD} readers were in after {time.monotonic() - begun:.1f} s, {lives} signs of life, CPU {cpu:.1f} s"
            )
            assert lives > 0
            reads, before = _log_reads(client), reads
            print(f"{reads - before} reads of logs")
            assert reads - before < LOADS_MAX
            await web.stop()
            with anyio.fail_after(30):
                for reader in herd:
                    await reader.ended.wait()
            held = fold_all(herd)
            pauses = sorted(reader.retry_ms or 0 for reader in herd)
            assert RETRY_MIN_MS <= pauses[0] < RETRY_MIN_MS + 200 and RETRY_MAX_MS - 200 < pauses[-1] <= RETRY_MAX_MS
            assert len(set(pauses)) > HERD / 8, "they do not come back all at once"
            again = stack.enter_context(start("web", "--port", port, log=tmp_path / "web", environment=environment))
            await again.ready()
            back = [HerdReader(reader.chat_id, reader.last_event_id) for reader in herd]
            continued = {new: held[old] for new, old in zip(back, herd, strict=True)}
            herd += back
            reads = _log_reads(client)
            begun = time.monotonic()
            lives = await _alive_while(again.url, open_all(again.url, back))
            cpu = await metric(again.url, "process_cpu_seconds_total")
            print(f"they were back after {time.monotonic() - begun:.1f} s, {lives} signs of life, CPU {cpu:.1f} s")
            reads, before = _log_reads(client), reads
            print(f"{reads - before} reads of logs")
            assert reads - before < LOADS_MAX
            for chat_id in chats:
                await command(again.url, chat_id, {"type": "abort", "client_request_id": "enough"})
            with anyio.fail_after(60):
                for reader in back:
                    while not reader.holds(b'"outcome":"aborted"'):
                        await anyio.sleep(0.01)
            ended = fold_all(back, continued)
            for chat_id in chats:
                async with watching(again.url, chat_id) as late:
                    snapshots = {watcher.snapshot for reader, watcher in ended.items() if reader.chat_id == chat_id}
                    assert snapshots == {late.snapshot}
        finally:
            close_all(herd)


async def _alive_while(url: str, work: Awaitable[None]) -> int:
    """How often /livez answered while `work` was done, each time soon."""
    count, longest_seconds = 0, 0.0
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client, anyio.create_task_group() as tasks:

        async def look() -> None:
            nonlocal count, longest_seconds
            while True:
                asked_at = time.monotonic()
                assert (await client.get(f"{url}/livez")).status_code == 200
                longest_seconds = max(longest_seconds, time.monotonic() - asked_at)
                count += 1
                await anyio.sleep(0.05)

        tasks.start_soon(look)
        with anyio.fail_after(60):
            await work
        tasks.cancel_scope.cancel()
    print(f"the longest that a sign of life took: {longest_seconds:.2f} s")
    assert longest_seconds < bar_seconds(LIFE_SECONDS)
    return count


def _log_reads(client: "redis.Redis") -> int:
    """How many times any log or inbox was read."""
    info = client.info("commandstats")
    return int(info.get("cmdstat_xrange", {}).get("calls", 0))
