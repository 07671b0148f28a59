"""A hundred readers that never read: their memory is bounded, they are disconnected, and a reader that keeps up gets no
new snapshot.

The tests use a separate web process and worker, so that the measured memory is the web process's alone.
"""

from pathlib import Path

import pytest

from tests.resources.measures import PeakMemory, eventually, metric
from tests.resources.readers import StalledReader, close_all
from tests.support.fleet import fleet_on_new_store
from tests.support.reader import watching
from tests.support.server import command, user_message

pytestmark = [pytest.mark.anyio, pytest.mark.slow(30)]

STALLED = 100
LIMITS = {"STREAMS_PER_PRINCIPAL": "5000", "SUBSCRIBER_STALL_SECONDS": "8"}
STALLED_MAX_BYTES = 400_000
"""Maximum user memory of each stalled reader: its queue of 256 kB, the bytes between the queue and the socket, and the
waiting task."""


async def test_a_hundred_stalled_readers_cost_bounded_memory_and_are_cut_while_others_read_on(tmp_path: Path) -> None:
    flood = {"model": "demo/essay?words=20000&rate=0"}
    with fleet_on_new_store(tmp_path, limits=LIMITS) as fleet:
        await fleet.open(1)
        (web,) = fleet.webs
        async with watching(web.url, "fast") as reader:
            await command(web.url, "fast", user_message("warm", "hello", params={"model": "demo/echo"}))
            await reader.at_rest()
            await command(
                web.url, "fast", user_message("first", "write", params=flood)
            )  # the measured growth must not include the memory of the chat's state
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
