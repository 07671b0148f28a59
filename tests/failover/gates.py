"""Gates: loopback addresses in front of a server; a test can point them at another server, hold them or cut them.

A `Pair` is a primary and its replica behind such gates, so that a test can promote the replica at the same address.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import anyio

from tests.support.store import POLL_SECONDS, StoreServer

__all__ = ["Gate", "Pair", "gate"]

DEADLINE_SECONDS = 30.0
"""Maximum seconds until a replica has caught up; it takes a second or two on a busy machine."""


class Gate:
    """An address in front of a server, like a host name or a virtual address. A gate works in one event loop.

    After `point_at`, new connections reach the new server and existing connections remain, as with a host name. After
    `hold`, no bytes pass in either direction; bytes that arrive meanwhile are lost if the gate is cut.
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
        """End all connections and drop the bytes that they hold; new connections may pass."""
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
            pass  # one side has disconnected, so the other connection ends too
        finally:
            self._writers -= both
            for each in both:
                each.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            await self._may_pass.wait()
            target.write(data)
            await target.drain()
        raise ConnectionResetError("this side has hung up")


class Pair:
    """A primary at `address`, and its replica, which follows it through `link`."""

    def __init__(self, primary: StoreServer, replica: StoreServer, link: Gate, address: Gate) -> None:
        self.primary = primary
        self.replica = replica
        self.link = link
        self.address = address

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.address.port}/0"

    async def replicated(self) -> None:
        """Wait until the replica has all data that the primary has at the time of the call."""
        offset = int(str(self.primary.replication("master_repl_offset")))
        with anyio.fail_after(DEADLINE_SECONDS):
            while int(str(self.replica.replication("slave_repl_offset"))) < offset:
                await anyio.sleep(POLL_SECONDS)

    def promote(self) -> None:
        """Make the replica a primary, which new connections to `address` reach."""
        self.replica.ask("REPLICAOF", "NO", "ONE")
        self.address.point_at(self.replica.port)


@contextlib.asynccontextmanager
async def gate(port: int) -> AsyncIterator[Gate]:
    """Open a gate in front of `port`."""
    made = Gate(port)
    listener = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = listener.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        listener.close()
        await made.close()
