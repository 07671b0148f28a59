"""Runs real Valkey and Redis servers for tests, on unix sockets or loopback ports, and sentinels that watch them.

Every server ends when the test process ends, even by kill -9 (`server_process.py`). A test signals only servers that it
started. `cluster.py` builds a Cluster from these servers.
"""

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis

from tests.ports import free_port
from threadcast.store.embedded.embedded import VOLATILE
from threadcast.store.embedded.server_process import ServerProcess, find_binary, start_server

__all__ = ["BINARIES", "POLL_SECONDS", "StoreServer", "running_sentinel", "running_store", "wait_until"]

BINARIES: dict[str, str | None] = {"valkey": str(find_binary()), "redis7": shutil.which("redis-server")}
"""The embedded server, and a Redis of the oldest supported version if the PATH has such a server."""

WAIT_SECONDS = 60.0
"""Maximum seconds of a start, a resync or a failover; each takes 1 to 4 s on a busy machine."""

REPLY_SECONDS = 5.0
"""Maximum seconds for one reply; a frozen server does not reply."""

POLL_SECONDS = 0.02


def wait_until(look: Callable[[], object], what: str) -> None:
    """Poll `look` until it returns a true value. Used for changes in other processes that send no event.

    Errors of Redis are retried. The function blocks, so an async test calls it in a thread.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        with suppress(redis.RedisError):
            if look():
                return
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS:g} s: {what}"
        time.sleep(POLL_SECONDS)


class StoreServer:
    """One Valkey or Redis server, which can be frozen, killed, and started again on its data and its address."""

    def __init__(
        self, directory: Path, arguments: Sequence[str | int] = VOLATILE, *, binary: Path | None = None, port: int = 0
    ) -> None:
        """Start the server and wait until it answers.

        Args:
            directory: Directory of the server's files, its log `store.log` and its socket.
            arguments: Options of the server's command line.
            binary: The server's executable; by default the embedded server.
            port: A loopback port, which `url` then names; 0 for a unix socket alone.
        """
        on_port = ["--port", str(port), "--bind", "127.0.0.1"] if port else []
        self.port = port
        self._arguments = [*map(str, arguments), *on_port]
        self._binary = binary or find_binary()
        self.directory = directory
        self.start()
        self.client = redis.Redis(unix_socket_path=str(self.process.path), socket_timeout=REPLY_SECONDS, protocol=2)

    def start(self) -> None:
        """Start the server again after a kill, on the same data and address."""
        self.process: ServerProcess = start_server(self._binary, self.directory, self._arguments)
        self.process.wait_ready_blocking()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0" if self.port else self.process.url

    def ask(self, *command: str | int | bytes) -> Any:  # Any: the type of a reply depends on the command
        return self.client.execute_command(*command)  # type: ignore[no-untyped-call] # redis-py's

    def replication(self, field: str) -> object:
        """Return a field of INFO replication."""
        info: dict[str, object] = self.client.info("replication")
        return info.get(field)

    def follow(self, port: int) -> None:
        """Become a replica of the server at `port`, and wait until all data has arrived."""
        self.ask("REPLICAOF", "127.0.0.1", port)
        wait_until(lambda: self.replication("master_link_status") == "up", f"{self.port} follows {port}")

    def signal(self, number: signal.Signals) -> None:
        self.process.signal(number)

    def kill(self) -> None:
        """kill -9. The process has ended when this function returns, so the next start can lock the directory."""
        self.signal(signal.SIGKILL)
        self.process.stop_blocking()

    def close(self) -> None:
        """End the server, also a frozen one. The server is killed by kill -9, because on SIGTERM a primary waits for
        replicas that lag."""
        self.client.close()
        self.kill()


@contextmanager
def running_store(
    directory: Path, arguments: Sequence[str | int] = VOLATILE, *, binary: Path | None = None, port: int = 0
) -> Iterator[StoreServer]:
    """Run a server for as long as the block runs; the arguments are those of `StoreServer`."""
    server = StoreServer(directory, arguments, binary=binary, port=port)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def running_sentinel(binary: Path, directory: Path, service: str, primary: int, quorum: int) -> Iterator[StoreServer]:
    """Run a sentinel that counts the primary at that port as down after a second without an answer."""
    directory.mkdir(parents=True)
    config = directory / "sentinel.conf"  # the sentinel writes what it learns into this file
    config.write_text(
        f"sentinel monitor {service} 127.0.0.1 {primary} {quorum}\n"
        f"sentinel down-after-milliseconds {service} 1000\n"
        f"sentinel failover-timeout {service} 5000\n"
    )
    program = directory / "sentinel"  # the name of the file must come before all options
    program.write_text(f'#!/bin/sh\nexec "{binary}" "{config}" --sentinel "$@"\n')
    program.chmod(0o700)
    with running_store(directory / "run", (), binary=program, port=free_port()) as server:
        yield server
