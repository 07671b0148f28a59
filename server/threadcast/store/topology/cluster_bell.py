"""Waits for the bells of a Cluster. Each bucket has its own connection and BLPOP, because one BLPOP can wait only for
keys of one slot. `pop_bell` is also used for single servers.

With a Cluster, `dispatch.py` passes a `ClusterBell` to each worker instead of the bell of a single server. Tokens are
popped only while the worker waits. A token that is popped after the worker stopped waiting is put back, so that another
worker receives the token.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import structlog
from redis.asyncio.connection import AbstractConnection

from threadcast.base.deadlines import Deadline
from threadcast.store.redis.connection import CONNECT_TIMEOUT_SECONDS, Reply, explain_error, pack
from threadcast.store.redis.keys import Keys
from threadcast.store.topology.cluster import Cluster
from threadcast.store.topology.route import Route, hang_up
from threadcast_protocol.wire.errors import Unavailable

__all__ = ["ClusterBell", "cluster_bell", "pop_bell"]

BLOCK_SECONDS = 1.0
"""The timeout in seconds of one BLPOP for one bucket."""

BLOCK_GRACE_SECONDS = 2.0
"""Seconds after the timeout of a BLPOP. If the server has not answered by then, the connection counts as half open
(DESIGN §3)."""

PAUSE_SECONDS = 0.5
"""Seconds between a failure and the next attempt; meanwhile the workers' regular check of all buckets finds due
chats."""

HELD_SECONDS = 0.2
"""Seconds that a token waits for a worker that is claiming chats at this moment. After this time the worker is probably
full, and the token is put back."""

_log = structlog.get_logger(__name__)


class ClusterBell:
    """Waits for bells on behalf of one worker. `cluster_bell` creates it."""

    def __init__(self, cluster: Cluster, keys: Keys) -> None:
        self._cluster = cluster
        self._keys = keys
        self._heard: dict[int, asyncio.Event] = {}
        self._muted: set[int] = set()
        self._wanted = asyncio.Event()
        self._has_arrived = asyncio.Event()

    async def wait(self, timeout_seconds: float) -> int | None:
        """Return the bucket that rang. Raises Unavailable while no bucket's bell can be reached."""
        self._wanted.set()
        try:
            with anyio.move_on_after(timeout_seconds):
                while not self._heard:
                    self._has_arrived.clear()
                    await self._has_arrived.wait()
            if not self._heard:
                if len(self._muted) == self._keys.buckets:
                    raise Unavailable("no bell of the store's Cluster can be reached")
                return None
            bucket = next(iter(self._heard))
            self._heard.pop(bucket).set()
            return bucket
        finally:
            self._wanted.clear()

    async def put_back(self, bucket: int) -> None:
        await self._cluster.call("ring", (self._keys.bell(bucket),))

    async def listen(self, bucket: int) -> None:
        """Listen to one bucket's bell for ever. This method is a boundary: after every failure, it opens a new
        connection."""
        bell = self._keys.bell(bucket)
        while True:
            try:
                route = self._cluster.route(bell)
                connection = route.connection()
                try:
                    while True:
                        await self._wanted.wait()
                        rung = await pop_bell(route, connection, [bell], BLOCK_SECONDS)
                        self._muted.discard(bucket)
                        if rung is not None:
                            await self._hand_over(bucket)
                finally:
                    await hang_up(connection)
            except Exception as wrong:
                self._muted.add(bucket)
                self._cluster.look_again()
                _log.info("bell.lost", bucket=bucket, error=explain_error(wrong).message)
                await anyio.sleep(PAUSE_SECONDS)

    async def _hand_over(self, bucket: int) -> None:
        taken = self._heard[bucket] = asyncio.Event()
        self._has_arrived.set()
        try:
            with anyio.move_on_after(HELD_SECONDS):
                await taken.wait()
        finally:
            if self._heard.pop(bucket, None) is not None:
                with anyio.CancelScope(shield=True):  # the command's own deadline bounds this wait
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


async def pop_bell(
    route: Route, connection: AbstractConnection, bells: Sequence[bytes], timeout_seconds: float
) -> bytes | None:
    """Wait until one of the bells rings, on a connection that the caller uses for nothing else. Returns the key of the
    bell, or None after the timeout. Raises Unavailable, or another error from `explain_error`."""
    block_seconds = max(timeout_seconds, 0.001)  # for Redis, 0 means no timeout
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            await route.open(connection)
        async with Deadline(block_seconds + BLOCK_GRACE_SECONDS):
            await connection.send_packed_command(pack(b"BLPOP", *bells, f"{block_seconds:.3f}"), False)
            reply: Reply = await connection.read_response()
    except Exception as wrong:  # boundary: errors of foreign code on this connection
        route.leave_if_demoted(connection, wrong)
        raise explain_error(wrong) from None
    return None if reply is None else reply[0]
