"""The configured store, or a private one that is started and kept running."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import structlog

from server.settings import Settings
from server.store.embedded import EmbeddedStore
from server.store.redis_store import RedisStore

__all__ = ["open_store"]

_log = structlog.get_logger()


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[tuple[RedisStore, Callable[[str], None]]]:
    """The configured store, or a private one that is started and kept running; and how to announce where we listen.

    Raises:
        Conflict: somebody serves this data directory already.
        Unavailable: no store can be reached or started; the sentence names the ways out.
    """
    if settings.store.url is not None:
        async with RedisStore(settings.store.url.reveal()) as store:
            for warning in await store.advice():
                _log.warning("store.advice", text=warning)
            yield store, _announce_nowhere
        return
    async with (
        EmbeddedStore(settings.store.data_path, memory=settings.store.memory) as embedded,
        anyio.create_task_group() as tasks,
        RedisStore(embedded.url) as store,
    ):
        tasks.start_soon(embedded.supervise)
        try:
            yield store, embedded.announce
        finally:
            tasks.cancel_scope.cancel()


def _announce_nowhere(_: str) -> None:
    return None
