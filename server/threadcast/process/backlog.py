"""Measures how long the oldest due chat has waited for a worker, how many chats wait, and how full the store is.

Web processes measure this, so that the values are also known while no worker runs. Each measurement is one pipeline,
whatever the number of chats.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio

from threadcast.base.telemetry import Metrics
from threadcast.http.readiness import LATE_SECONDS, Readiness
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.errors import ThreadcastError

__all__ = ["LOOK_SECONDS", "watched_backlog"]

LOOK_SECONDS = 10.0
"""Seconds between measurements, the usual interval of a metrics collector; a measurement sends 17 small commands."""


@asynccontextmanager
async def watched_backlog(store: RedisStore, metrics: Metrics, readiness: Readiness) -> AsyncIterator[None]:
    """Measure the backlog while the block runs, for `/metrics` and `/readyz`."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_look_forever, store, metrics, readiness)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


async def _look_forever(store: RedisStore, metrics: Metrics, readiness: Readiness) -> None:
    while True:
        with suppress(ThreadcastError):  # an unreachable store has its own alarms; the last value is kept
            oldest_seconds = await store.oldest_due_seconds()
            count = await store.due_count() if oldest_seconds >= LATE_SECONDS else 0
            metrics.oldest_due_seconds.set(oldest_seconds)
            metrics.runs_waiting.labels("worker").set(count)
            readiness.note_backlog(oldest_seconds, count)
            metrics.store_used_share.set(max((health.used_share for health in await store.health()), default=0.0))
        await anyio.sleep(LOOK_SECONDS)
