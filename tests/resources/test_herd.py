"""Two thousand readers connect at once, and reconnect at once: the server reads each chat once for all of them, and no
reader waits.

The tests use a separate web process and worker. The store counts the commands that the readers cause. The test folds
each reader's stream as a client does, and all streams must give the same state.
"""

import time
from collections.abc import Awaitable
from pathlib import Path

import anyio
import httpx2
import pytest
import redis

from tests.bars import bar_seconds
from tests.ports import free_port
from tests.resources.measures import DEADLINE_SECONDS, metric
from tests.resources.readers import HerdReader, allow_open_files, close_all, fold_all, open_all
from tests.support.fleet import fleet_on_new_store
from tests.support.reader import watching
from tests.support.server import command, user_message
from threadcast.fanout.connection import RETRY_MAX_MS, RETRY_MIN_MS

pytestmark = [pytest.mark.anyio, pytest.mark.slow(50)]

HERD = 2_000
HERD_CHATS = 4
LOADS_MAX = 60
"""Maximum number of log reads while the readers connect: one read to open each chat and a few reads by the worker, but
no read for each reader."""

LIFE_SECONDS = 3.0
"""Maximum seconds that a probe waits for its answer, also while two thousand streams are opened."""


async def test_a_herd_of_2000_shares_the_store_ends_equal_and_comes_back_spread_out(tmp_path: Path) -> None:
    if allow_open_files(2 * HERD + 500) < HERD + 500:
        pytest.skip(f"this user may not open {HERD} files")
    with fleet_on_new_store(tmp_path, limits={"STREAMS_PER_PRINCIPAL": "5000"}) as fleet:
        await fleet.add_worker()
        client = fleet.store.client
        port = free_port()  # the web process has the same address before and after the restart
        web = await fleet.add_web(port=port)
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
            again = await fleet.add_web(port=port)
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
    """Count the answers of /livez while `work` runs; each must arrive soon."""
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
    """Return how many times any log or inbox was read."""
    info = client.info("commandstats")
    return int(info.get("cmdstat_xrange", {}).get("calls", 0))
