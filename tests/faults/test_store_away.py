"""The store stalls, or dies and comes back: posts are refused with 503, no command is lost, and all chats continue by
themselves."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, serving, start, user_message
from tests.support.store import StoreServer, running_store
from threadcast.store.embedded.embedded import PERSISTENT

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ESSAY = {"model": "demo/essay?words=150&rate=60"}


@asynccontextmanager
async def harness(tmp_path: Path) -> AsyncIterator[tuple[Process, StoreServer]]:
    """A server process over its own store, which can be stopped and started."""
    with (
        running_store(tmp_path, PERSISTENT) as store,
        start("serve", "--port", "0", log=tmp_path / "log", environment={"REDIS_URL": store.url}) as process,
    ):
        yield await process.ready(), store


async def ready(url: str, wanted: int) -> str:
    """Wait until the server reports that it can, or cannot, take commands."""
    async with httpx2.AsyncClient(timeout=10) as client:
        with anyio.fail_after(DEADLINE_SECONDS):
            while (answer := await client.get(f"{url}/readyz")).status_code != wanted:
                await anyio.sleep(0.05)
    return answer.text


async def test_while_the_store_is_stalled_posts_are_503_and_afterwards_the_answer_goes_on(tmp_path: Path) -> None:
    async with harness(tmp_path) as (process, store), watching(process.url, "c1") as watcher:
        await command(process.url, "c1", user_message("a", "write", params=ESSAY))
        await watcher.until(lambda w: "stream_delta" in w.types())
        store.signal(signal.SIGSTOP)
        try:
            said = await ready(process.url, 503)
            assert "store" in said
            refused = await command(process.url, "c1", user_message("b", "hello?"))
            assert (refused.status_code, refused.json()["status"]) == (503, "unavailable")
            assert "retry-after" in refused.headers
        finally:
            store.signal(signal.SIGCONT)
        await ready(process.url, 200)
        accepted = await command(process.url, "c1", user_message("b", "hello?"))
        assert accepted.status_code in (200, 202), "a refused id may have been kept; it is not burnt"
        await watcher.at_rest(2)
    essay = watcher.messages[1][1]
    assert len(essay.split()) == 150
    assert [role for role, _ in watcher.messages] == ["user", "assistant", "user", "assistant"]


async def test_a_killed_store_comes_back_with_everything_that_was_seen(tmp_path: Path) -> None:
    async with harness(tmp_path) as (process, store), watching(process.url, "c1") as watcher:
        await command(process.url, "c1", user_message("a", "write", params=ESSAY))
        await watcher.until(lambda w: w.types().count("stream_delta") > 3)
        store.kill()
        await ready(process.url, 503)
        store.start()
        await ready(process.url, 200)
        await watcher.at_rest()
        async with watching(process.url, "c1") as late:
            assert late.snapshot == watcher.snapshot
        assert len(watcher.messages[1][1].split()) == 150
        assert await process.stop() == 0


async def test_the_embedded_store_is_started_again_when_it_dies(tmp_path: Path) -> None:
    async with serving(tmp_path, is_durable=True) as process:
        async with watching(process.url, "c1") as watcher:
            await command(process.url, "c1", user_message("a", "before"))
            await watcher.at_rest()
            os.kill(_child_of(process.pid), signal.SIGKILL)
            with anyio.fail_after(DEADLINE_SECONDS):
                while "store.restarted" not in process.log_text():  # the time with 503 may be too short to be seen
                    await anyio.sleep(0.05)
            await ready(process.url, 200)
            await command(process.url, "c1", user_message("b", "after"))
            await watcher.at_rest(2)
        assert [text for role, text in watcher.messages if role == "user"] == ["before", "after"]


async def test_kill_9_of_the_server_leaves_no_orphan(tmp_path: Path) -> None:
    async with serving(tmp_path, is_durable=True) as process:
        child = _child_of(process.pid)
        process.kill()
        with anyio.fail_after(30):
            while _is_alive(child):
                await anyio.sleep(0.02)


def _child_of(pid: int) -> int:
    """Return the process id of the store that this server started."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
