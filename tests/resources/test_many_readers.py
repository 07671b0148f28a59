"""A hundred readers that never read, and two thousand that come at once: memory and store stay bounded, nobody waits.

A web process and a worker of their own, so that memory is the web process's alone. What the herd costs the store is
counted by the store: a chat is read once for all who come for it.
"""

import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
import redis

from server.relay.connection import RETRY_MAX_MS, RETRY_MIN_MS
from server.store.embedded import VOLATILE
from server.store.server_process import ServerProcess
from tests.integration.harness import command, start, user_message, watching
from tests.ports import free_port
from tests.resources.measures import DEADLINE_SECONDS, PeakMemory, eventually, metric, started_store
from tests.resources.readers import HerdReader, StalledReader, allow_open_files, close_all, fold_all, open_all

pytestmark = [pytest.mark.anyio, pytest.mark.slow(30)]

STALLED = 100
STALLED_MAX_BYTES = 400_000
"""Of user memory for each: its queue of 256 kB, what lies between it and the socket, and the task that waits."""

HERD = 2_000
HERD_CHATS = 4
LOADS_MAX = 60
"""Reads of a log while the herd comes in: for each chat one to open it and a few of the worker's own; never one a
reader."""


@asynccontextmanager
async def house(tmp_path: Path, **limits: str) -> AsyncIterator[tuple[ExitStack, ServerProcess, dict[str, str]]]:
    with ExitStack() as stack:
        store = stack.enter_context(started_store(tmp_path / "store", tuple(VOLATILE)))
        named = {f"THREADCAST_LIMITS__{name.upper()}": value for name, value in limits.items()}
        environment = {"REDIS_URL": store.url, "THREADCAST_LIMITS__STREAMS_PER_PRINCIPAL": "5000", **named}
        worker = stack.enter_context(start("worker", log=tmp_path / "worker", environment=environment))
        await worker.ready()
        yield stack, store, environment


async def test_a_hundred_stalled_readers_cost_bounded_memory_and_are_cut_while_others_read_on(tmp_path: Path) -> None:
    flood = {"model": "demo/essay?words=20000&rate=0"}
    async with house(tmp_path, subscriber_stall_seconds="8") as (stack, _, environment):
        web = stack.enter_context(start("web", "--port", "0", log=tmp_path / "web", environment=environment))
        await web.ready()
        async with watching(web.url, "fast") as reader:
            await command(web.url, "fast", user_message("warm", "hello", params={"model": "demo/echo"}))
            await reader.at_rest()
            await command(web.url, "fast", user_message("first", "write", params=flood))  # what the chat itself costs
            await reader.at_rest(2)
            peak = PeakMemory(web.pid)
            stalled = [StalledReader(web.url, "fast") for _ in range(STALLED)]
            try:
                for number in range(8):
                    await command(web.url, "fast", user_message(f"a{number}", "write", params=flood))
                    await reader.at_rest(number + 3)
                assert reader.snapshots == 1, "who reads is never thrown back"
                assert await metric(web.url, 'resyncs_total{reason="slow"}') >= STALLED / 2, "their queues were full"
                each = peak.growth_bytes / STALLED
                print(f"{each / 1_000:.0f} kB of user memory for each stalled reader")
                assert each < STALLED_MAX_BYTES

                async def all_are_cut() -> bool:
                    return await metric(web.url, 'streams_ended_total{reason="slow"}') == STALLED

                await eventually(all_are_cut)
                await command(web.url, "fast", user_message("last", "well?", params={"model": "demo/echo"}))
                await reader.at_rest(11)
            finally:
                close_all(stalled)


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
    """How often /livez answered while `work` was done."""
    count = 0
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client, anyio.create_task_group() as tasks:

        async def look() -> None:
            nonlocal count
            while True:
                assert (await client.get(f"{url}/livez")).status_code == 200
                count += 1
                await anyio.sleep(0.05)

        tasks.start_soon(look)
        with anyio.fail_after(60):
            await work
        tasks.cancel_scope.cancel()
    return count


def _log_reads(client: "redis.Redis") -> int:
    """How many times any log or inbox was read."""
    info = client.info("commandstats")
    return int(info.get("cmdstat_xrange", {}).get("calls", 0))
