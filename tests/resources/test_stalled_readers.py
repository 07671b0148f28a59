"""A hundred readers that never read: their memory is bounded, they are cut, and who reads is never thrown back.

A web process and a worker of their own, so that the memory that is measured is the web process's alone.
"""

from pathlib import Path

import pytest

from tests.integration.harness import command, start, user_message, watching
from tests.resources.houses import house
from tests.resources.measures import PeakMemory, eventually, metric
from tests.resources.readers import StalledReader, close_all

pytestmark = [pytest.mark.anyio, pytest.mark.slow(30)]

STALLED = 100
STALLED_MAX_BYTES = 400_000
"""Of user memory for each: its queue of 256 kB, what lies between it and the socket, and the task that waits."""


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
