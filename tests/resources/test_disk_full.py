"""The store's disk is full: posts are refused with a sentence, answers wait in their buffers, and no accepted command
is lost.

One test limits the size of files, which needs no privileges, and another test fills a real file system. The store
writes its append-only file after each step. When a write to the file fails, the store refuses all further commands that
write; it accepts them again as soon as a write to the file has succeeded.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.resources.measures import (
    PeakMemory,
    append_only_bytes,
    eventually,
    file_size_limit,
    metric,
    ready,
    small_filesystem,
)
from tests.support.reader import watching
from tests.support.server import Process, command, start, user_message
from tests.support.store import StoreServer, running_store
from threadcast.store.embedded.embedded import PERSISTENT

pytestmark = pytest.mark.anyio

ESSAY = {"model": "demo/essay?words=400&rate=200"}
FLOOD = {"model": "demo/essay?words=20000&rate=0"}
FLOOD_WORDS = 20_000


@asynccontextmanager
async def serving(store: StoreServer, log: Path) -> AsyncIterator[Process]:
    with start("serve", "--port", "0", log=log, environment={"REDIS_URL": store.url}) as process:
        yield await process.ready()


@contextmanager
def full(store: StoreServer) -> Iterator[None]:
    with file_size_limit(store.pid, append_only_bytes(store.directory)):
        yield


async def test_with_a_full_disk_posts_are_refused_and_afterwards_everything_accepted_is_there(tmp_path: Path) -> None:
    with running_store(tmp_path / "store", PERSISTENT) as store:
        async with serving(store, tmp_path / "log") as server, watching(server.url, "c1") as watcher:
            await command(server.url, "c1", user_message("a", "write", params=ESSAY))
            await watcher.until(lambda w: w.types().count("stream_delta") > 2)
            with full(store):
                said = await ready(server.url, 503)
                assert "cannot write to its disk" in said
                refused = await command(server.url, "c1", user_message("b", "hello?"))
                assert (refused.status_code, refused.json()["status"]) == (503, "unavailable")
                assert "disk" in refused.json()["error"]
                assert "retry-after" in refused.headers
                async with watching(server.url, "c1") as late:  # reading goes on
                    assert late.messages[0] == ("user", "write")
            await ready(server.url, 200)
            accepted = await command(server.url, "c1", user_message("b", "hello?", params={"model": "demo/echo"}))
            assert accepted.status_code == 202
            await watcher.at_rest(2)
            held = watcher.snapshot
        assert len(watcher.messages[1][1].split()) == 400
        store.kill()
        store.start()
        async with serving(store, tmp_path / "log") as server, watching(server.url, "c1") as after:
            assert after.snapshot == held, "an accepted command is on the disk"


async def test_a_model_that_goes_on_fills_a_bounded_buffer_and_then_waits(tmp_path: Path) -> None:
    with running_store(tmp_path / "store", PERSISTENT) as store:
        async with serving(store, tmp_path / "log") as server, watching(server.url, "c1") as watcher:
            await command(server.url, "c1", user_message("a", "hello", params={"model": "demo/echo"}))
            await watcher.at_rest()
            await command(server.url, "c1", user_message("b", "write", params=FLOOD))
            await watcher.until(lambda w: w.types().count("stream_delta") > 1)
            with full(store):
                await ready(server.url, 503)
                seen = len(watcher.frames)
                peak = PeakMemory(server.pid)
                refused = await _refused_appends(server)

                async def tries_on() -> bool:
                    return await _refused_appends(server) >= refused + 2

                await eventually(tries_on)
                assert peak.growth_bytes < 30_000_000
                assert len(watcher.frames) <= seen + 1
            await watcher.at_rest(2)
            assert len(watcher.messages[3][1].split()) == FLOOD_WORDS


async def test_on_a_really_full_file_system_nothing_accepted_is_lost(tmp_path: Path) -> None:
    with ExitStack() as stack:
        disk = stack.enter_context(small_filesystem(tmp_path / "disk", 4_000_000))
        data = disk / "data"
        arguments = ["serve", "--port", "0", "--data-dir", str(data)]
        server = stack.enter_context(start(*arguments, log=tmp_path / "log"))
        await server.ready()
        ballast = disk / "ballast"
        async with watching(server.url, "c1") as watcher:
            await command(server.url, "c1", user_message("a", "write", params=ESSAY))
            await watcher.until(lambda w: w.types().count("stream_delta") > 2)
            _fill(ballast)
            said = await ready(server.url, 503)
            assert "cannot write to its disk" in said
            refused = await command(server.url, "c1", user_message("b", "hello?"))
            assert refused.status_code == 503
            ballast.unlink()
            await ready(server.url, 200)
            assert (await command(server.url, "c1", user_message("b", "hello?"))).status_code == 202
            await watcher.at_rest(2)
            held = watcher.snapshot
        assert len(watcher.messages[1][1].split()) == 400
        assert await server.stop() == 0
        again = stack.enter_context(start(*arguments, log=tmp_path / "log"))
        await again.ready()
        async with watching(again.url, "c1") as after:
            assert after.snapshot == held


async def _refused_appends(server: Process) -> float:
    return await metric(server.url, 'store_errors_total{kind="append"}')


def _fill(ballast: Path) -> None:
    """Write until the file system has no byte left."""
    with ballast.open("wb", buffering=0) as file:
        size = 65_536
        while size:
            try:
                if file.write(b"x" * size) < size:
                    size //= 2
            except OSError:
                size //= 2
