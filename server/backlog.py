"""Whether anybody works on what was accepted: how long the oldest chat has waited for a worker, as a metric.

With no worker there is nobody who could count what waits, so web processes look. It does not know who works, nor where.
`app.py` runs it beside the routes. The rule: it costs one pipeline each time, however many chats the store holds.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio

from protocol.errors import ThreadcastError
from server.store.redis_store import RedisStore
from server.telemetry import Metrics

__all__ = ["LOOK_SECONDS", "watched_backlog"]

LOOK_SECONDS = 10.0
"""Between looks: as often as a collector usually comes, and 16 small commands each."""


@asynccontextmanager
async def watched_backlog(store: RedisStore, metrics: Metrics) -> AsyncIterator[None]:
    """It is looked at for as long as this is entered."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_look_forever, store, metrics)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


async def _look_forever(store: RedisStore, metrics: Metrics) -> None:
    while True:
        with suppress(ThreadcastError):  # a store that does not answer has alarms of its own; the last figure stays
            metrics.oldest_due_seconds.set(await store.oldest_due_seconds())
        await anyio.sleep(LOOK_SECONDS)
