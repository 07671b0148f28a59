"""The bells of a Cluster: a connection and a BLPOP for each bucket, since one call may only wait in one slot.

It does not know why a bucket rings. `dispatch.py` gives it to workers in place of its own bell. The rule: tokens are
popped only while somebody waits; one that came too late goes back, so that another worker hears it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import structlog
from redis.asyncio.connection import AbstractConnection

from protocol.errors import Unavailable
from server.store.cluster import Cluster
from server.store.connection import CONNECT_TIMEOUT_SECONDS, explain_error, pack
from server.store.keys import Keys
from server.store.route import Route

__all__ = ["ClusterBell", "cluster_bell"]

BLOCK_SECONDS = 1.0
BLOCK_GRACE_SECONDS = 2.0
"""One BLPOP, and how much later its answer may come before the connection counts as half open."""

PAUSE_SECONDS = 0.5
"""After a failure; the sweep finds the chats meanwhile."""

HELD_SECONDS = 0.2
"""How long a token may wait for its worker, who is claiming chats just now; a worker that is full comes later."""

_log = structlog.get_logger(__name__)


class ClusterBell:
    """Made by `cluster_bell`, for one worker."""

    def __init__(self, cluster: Cluster, keys: Keys) -> None:
        self._cluster = cluster
        self._keys = keys
        self._heard: dict[int, asyncio.Event] = {}
        self._muted: set[int] = set()
        self._wanted = asyncio.Event()
        self._news = asyncio.Event()

    async def wait(self, timeout_seconds: float) -> int | None:
        """Raises Unavailable while no bucket's bell can be heard."""
        self._wanted.set()
        try:
            with anyio.move_on_after(timeout_seconds):
                while not self._heard:
                    self._news.clear()
                    await self._news.wait()
            if not self._heard:
                if len(self._muted) == self._keys.buckets:
                    raise Unavailable("no node of the store's Cluster rings")
                return None
            bucket = next(iter(self._heard))
            self._heard.pop(bucket).set()
            return bucket
        finally:
            self._wanted.clear()

    async def put_back(self, bucket: int) -> None:
        await self._cluster.call("ring", (self._keys.bell(bucket),))

    async def listen(self, bucket: int) -> None:
        """One bucket's bell, for ever. Boundary: every failure ends here and in a new connection."""
        bell = self._keys.bell(bucket)
        while True:
            try:
                route = self._cluster.route(bell)
                connection = route.connection()
                try:
                    while True:
                        await self._wanted.wait()
                        has_rung = await _pop(route, connection, bell)
                        self._muted.discard(bucket)
                        if has_rung:
                            await self._hand_over(bucket)
                finally:
                    with suppress(Exception):  # closing a broken connection may fail; there is nothing left to lose
                        await connection.disconnect(nowait=True)
            except Exception as wrong:
                self._muted.add(bucket)
                self._cluster.look_again()
                _log.info("bell.lost", bucket=bucket, error=explain_error(wrong).message)
                await anyio.sleep(PAUSE_SECONDS)

    async def _hand_over(self, bucket: int) -> None:
        taken = self._heard[bucket] = asyncio.Event()
        self._news.set()
        try:
            with anyio.move_on_after(HELD_SECONDS):
                await taken.wait()
        finally:
            if self._heard.pop(bucket, None) is not None:
                with anyio.CancelScope(shield=True):  # bounded by the command's own deadline
                    await self.put_back(bucket)


@asynccontextmanager
async def cluster_bell(cluster: Cluster, keys: Keys) -> AsyncIterator[ClusterBell]:
    bell = ClusterBell(cluster, keys)
    async with anyio.create_task_group() as tasks:
        for bucket in range(keys.buckets):
            tasks.start_soon(bell.listen, bucket)
        try:
            yield bell
        finally:
            tasks.cancel_scope.cancel()


async def _pop(route: Route, connection: AbstractConnection, bell: bytes) -> bool:
    async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
        await route.open(connection)
    async with asyncio.timeout(BLOCK_SECONDS + BLOCK_GRACE_SECONDS):
        await connection.send_packed_command(pack(b"BLPOP", bell, f"{BLOCK_SECONDS:.3f}"), False)
        return await connection.read_response() is not None
