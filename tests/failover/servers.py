"""Primaries, replicas and sentinels on loopback, and gates: addresses that can be pointed elsewhere, held or cut.

Real servers, run by the embedded binary or by redis-server, without anything installed. It knows nothing of the
product. Each server dies with the test process. The rule: a test ends only what it started, by its pid.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import anyio
import pytest
import redis

from server.store import child
from tests.ports import free_port

__all__ = [
    "DEADLINE_SECONDS",
    "Gate",
    "Pair",
    "Server",
    "both_servers",
    "gate",
    "sentinel",
    "server",
    "wait_until",
]

both_servers = pytest.mark.parametrize("binary", ["valkey", "redis7"], indirect=True)
"""Where what the server answers matters; elsewhere one is enough."""

DEADLINE_SECONDS = 30.0
"""For a server's start, a resync, a failover: each takes a second or two on a busy machine."""

POLL_SECONDS = 0.02


def wait_until(look: Callable[[], object], what: str) -> None:
    """For what another process brings about and does not announce. Blocks: for the time before a test's events."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        with contextlib.suppress(redis.RedisError):
            if look():
                return
        assert time.monotonic() < deadline, f"not within {DEADLINE_SECONDS:g} s: {what}"
        time.sleep(POLL_SECONDS)


class Server:
    """A Redis, a Valkey, or a sentinel at 127.0.0.1:`port`."""

    def __init__(self, binary: Path, directory: Path, *arguments: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.client = redis.Redis(port=self.port, socket_timeout=DEADLINE_SECONDS)
        directory.mkdir(parents=True)
        self._log = directory / "log"
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(directory), "--logfile", str(self._log)]
        # The shim of the embedded store: the server ends with us, however we end.
        shim = [sys.executable, "-I", "-S", child.__file__, str(os.getpid())]
        self._process = subprocess.Popen(
            [*shim, str(binary), *arguments, *place],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(self.client.ping, f"the server at {self.port} answers; its log: {self.log_text()}")
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def log_text(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def call(self, *command: str | int) -> object:
        answer: object = self.client.execute_command(*command)  # type: ignore[no-untyped-call] # redis-py's
        return answer

    def replication(self, field: str) -> object:
        """A field of INFO replication."""
        info: dict[str, object] = self.client.info("replication")
        return info.get(field)

    def follow(self, port: int) -> None:
        """Become a replica of what listens at `port`, and wait until it has everything."""
        self.call("REPLICAOF", "127.0.0.1", port)
        wait_until(lambda: self.replication("master_link_status") == "up", f"{self.port} follows {port}")

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait(DEADLINE_SECONDS)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def close(self) -> None:
        self.client.close()
        if self._process.poll() is None:
            self.kill()


@contextlib.contextmanager
def server(binary: Path, directory: Path, *arguments: str) -> Iterator[Server]:
    """A server without persistence that a replica can follow at once."""
    quick = ("--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
    started = Server(binary, directory, *quick, *arguments)
    try:
        yield started
    finally:
        started.close()


@contextlib.contextmanager
def sentinel(binary: Path, directory: Path, service: str, primary: int, quorum: int) -> Iterator[Server]:
    """A sentinel that takes a primary for dead after a second."""
    port = free_port()
    directory.mkdir(parents=True)
    config = directory / "sentinel.conf"  # it writes what it learns into this file
    config.write_text(
        f"sentinel monitor {service} 127.0.0.1 {primary} {quorum}\n"
        f"sentinel down-after-milliseconds {service} 1000\n"
        f"sentinel failover-timeout {service} 5000\n"
    )
    started = Server(binary, directory / "run", str(config), "--sentinel", port=port)
    try:
        yield started
    finally:
        started.close()


class Gate:
    """An address of its own in front of a server, as a name or a virtual address is. For one event loop.

    `point_at` is for those who connect from then on, as with a name: who is connected stays where he is. `hold` lets
    nothing pass in either direction, and what comes meanwhile is lost when the gate is cut.
    """

    def __init__(self, port: int) -> None:
        self.port = 0
        self._target = port
        self._may_pass = asyncio.Event()
        self._may_pass.set()
        self._writers: set[asyncio.StreamWriter] = set()

    def point_at(self, port: int) -> None:
        self._target = port

    def hold(self) -> None:
        self._may_pass.clear()

    def cut(self) -> None:
        """End all connections, with what they hold; new ones may pass."""
        for writer in self._writers:
            writer.transport.abort()
        self._may_pass.set()

    async def close(self) -> None:
        self.cut()
        with anyio.fail_after(DEADLINE_SECONDS):
            while self._writers:
                await anyio.sleep(POLL_SECONDS)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, onward[1]}
        self._writers |= both
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, onward[1]))
                tasks.create_task(self._pump(onward[0], writer))
        except* OSError:
            pass  # one side is gone, and so is the other
        finally:
            self._writers -= both
            for each in both:
                each.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            await self._may_pass.wait()
            target.write(data)
            await target.drain()
        raise ConnectionResetError("it has hung up")


class Pair:
    """A primary at `address` and its replica, which hears it through `link`."""

    def __init__(self, primary: Server, replica: Server, link: Gate, address: Gate) -> None:
        self.primary = primary
        self.replica = replica
        self.link = link
        self.address = address

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.address.port}/0"

    async def replicated(self) -> None:
        """Wait until the replica has what the primary had when this was called."""
        offset = int(str(self.primary.replication("master_repl_offset")))
        with anyio.fail_after(DEADLINE_SECONDS):
            while int(str(self.replica.replication("slave_repl_offset"))) < offset:
                await anyio.sleep(POLL_SECONDS)

    def promote(self) -> None:
        """The replica becomes a primary, and who connects from now on reaches it."""
        self.replica.call("REPLICAOF", "NO", "ONE")
        self.address.point_at(self.replica.port)


@contextlib.asynccontextmanager
async def gate(port: int) -> AsyncIterator[Gate]:
    """A gate in front of `port`."""
    made = Gate(port)
    listener = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = listener.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        listener.close()
        await made.close()
