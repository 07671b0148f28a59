"""A process that receives SIGTERM while its store does not answer still ends in time."""

import signal
from pathlib import Path

import anyio
import pytest

from tests.bars import bar_seconds
from tests.support.reader import watching
from tests.support.server import command, start, user_message
from tests.support.store import running_store

pytestmark = pytest.mark.anyio

STOP_SECONDS = 15.0
"""Maximum seconds from SIGTERM to the end of the process: a drain of one second, calls to the store (4 s each), and
extra time for a busy machine. Without a bound a process takes a minute to end, and a container engine kills it after
ten seconds."""


async def test_a_server_ends_in_time_although_its_store_hangs_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    with running_store(tmp_path / "store") as store:
        environment = {"REDIS_URL": store.url, "THREADCAST_LIMITS__DRAIN_SECONDS": "1"}
        with start("serve", "--port", "0", log=tmp_path / "log", environment=environment) as server:
            await server.ready()
            async with watching(server.url, "c1") as watcher:
                params = {"model": "demo/essay?words=300&rate=100"}
                await command(server.url, "c1", user_message("a", "write", params=params))
                await watcher.until(lambda w: w.types().count("stream_delta") > 3)
                store.signal(signal.SIGSTOP)
                with anyio.fail_after(bar_seconds(STOP_SECONDS)):
                    assert await server.stop() == 0
            assert "worker.drained_late" in server.log_text()
        store.signal(signal.SIGCONT)
        with start("serve", "--port", "0", log=tmp_path / "log", environment=environment) as again:
            await again.ready()
            async with watching(again.url, "c1") as later:
                await later.at_rest()
            assert len(later.messages[1][1].split()) == 300, "what was not written was said once more, once"
