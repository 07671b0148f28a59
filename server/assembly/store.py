"""Opens the store: waits until the configured one answers, or starts a private one and keeps it running."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio
import structlog

from protocol.errors import Unavailable
from server.settings import Settings
from server.settings.store_url import shown_url
from server.store.connection import AccessRefused
from server.store.embedded import EmbeddedStore
from server.store.redis_store import RedisStore, check_url

__all__ = ["open_store"]

TRY_AGAIN_SECONDS = 0.5
"""The pause between two attempts to reach a store that is down: its return is noticed within this time and one
attempt."""

SAY_AGAIN_SECONDS = 10.0
"""The time between two lines of the log while a process waits for its store."""

_log = structlog.get_logger()


@asynccontextmanager
async def open_store(
    settings: Settings, told: Callable[[str], None]
) -> AsyncIterator[tuple[RedisStore, Callable[[str], None]]]:
    """Open the configured store, or start a private one and keep it running. Yields the store and a function that
    announces where we listen.

    Waits for a configured store that cannot be reached, also when its name does not resolve yet, as happens when all
    services start at once; calls `told` with the reason each time.

    Raises:
        Conflict: somebody serves this data directory already.
        AccessRefused: the configured store refuses our user or password.
        Internal: the server that answers cannot be our store.
        Unavailable: no private store can be started; the sentence names the ways out.
        ValueError: the URL of the store cannot be read.
    """
    if settings.store.url is not None:
        url = settings.store.url.reveal()
        check_url(url)
        async with AsyncExitStack() as stack:
            store = await _Waiting(url, told).reached()
            stack.push_async_exit(store)
            with suppress(Unavailable):  # it went away again; whoever needs it says so
                for warning in await store.advice():
                    _log.warning("store.advice", text=warning)
            yield store, _announce_nowhere
        return
    async with (
        EmbeddedStore(settings.store.data_path, memory=settings.store.memory) as embedded,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(embedded.supervise)
        async with RedisStore(embedded.url) as store:
            yield store, embedded.announce
        # Not earlier: closing the store awaits, and in a cancelled scope that would replace the error on its way out.
        tasks.cancel_scope.cancel()


class _Waiting:
    """Waits for the store at `url`."""

    def __init__(self, url: str, told: Callable[[str], None]) -> None:
        self._url = url
        self._told = told
        self._since: float | None = None
        self._said_at: float | None = None

    async def reached(self) -> RedisStore:
        """Enter the store as soon as it can be reached, and return it. Raises AccessRefused, Internal."""
        while True:
            try:
                store = await RedisStore(self._url).__aenter__()
            except AccessRefused:
                raise
            except Unavailable as trouble:
                self._say(trouble.message)
                await anyio.sleep(TRY_AGAIN_SECONDS)
                continue
            if self._since is not None:
                _log.info("store.reached", waited_seconds=round(anyio.current_time() - self._since, 1))
            return store

    def _say(self, trouble: str) -> None:
        self._told(trouble)
        now = anyio.current_time()
        if self._since is None:
            self._since = now
        if self._said_at is None or now - self._said_at >= SAY_AGAIN_SECONDS:
            self._said_at = now
            address = shown_url(self._url).partition("://")[2]  # logs mask a whole URL as a secret
            waited_seconds = round(now - self._since, 1)
            _log.warning("store.waiting", address=address, error=trouble, waited_seconds=waited_seconds)


def _announce_nowhere(_: str) -> None:
    return None
