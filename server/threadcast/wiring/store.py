"""Opens the store: waits until the configured store answers, or starts a private store and keeps it running."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio
import structlog

from threadcast.settings import Settings
from threadcast.store.embedded.embedded import EmbeddedStore
from threadcast.store.embedded.erasure import erase_forever
from threadcast.store.redis.connection import AccessRefused
from threadcast.store.redis.store import RedisStore, check_url
from threadcast.store.url import shown_url
from threadcast_protocol.wire.errors import Unavailable

__all__ = ["open_store"]

TRY_AGAIN_SECONDS = 0.5
"""Seconds between two attempts to reach a store that is down. After the store returns, the process notices this within
the pause and the time of one attempt."""

SAY_AGAIN_SECONDS = 10.0
"""Seconds between two log lines while a process waits for its store."""

_log = structlog.get_logger()


@asynccontextmanager
async def open_store(
    settings: Settings, told: Callable[[str], None]
) -> AsyncIterator[tuple[RedisStore, Callable[[str], None]]]:
    """Open the configured store, or start a private store and keep it running. Yields the store and a function that
    announces the server's URL to other programs.

    Waits until the name of a configured store resolves and the store can be reached, because both may take some time
    when all services start at once. Calls `told` with the reason after each failed attempt.

    Raises:
        Conflict: another process serves this data directory already.
        AccessRefused: the configured store refuses our user or password.
        Internal: the server at the URL cannot be used as the store.
        Unavailable: no private store can be started; the message says what to do.
        ValueError: the URL of the store cannot be read.
    """
    if settings.store.url is not None:
        url = settings.store.url.reveal()
        check_url(url)
        async with AsyncExitStack() as stack:
            store = await _Waiting(url, told).reached()
            stack.push_async_exit(store)
            await _log_advice(store)
            yield store, lambda _: None
        return
    own = settings.store
    async with (
        EmbeddedStore(own.data_path, memory=own.memory, max_bytes=own.memory_max_bytes) as embedded,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(embedded.supervise)
        async with RedisStore(embedded.url) as store:
            erasing = anyio.CancelScope()
            if not own.memory:
                tasks.start_soon(_erase, erasing, store, own.erase_after_seconds)
            await _log_advice(store)
            try:
                yield store, embedded.announce
            finally:
                erasing.cancel()  # cancels only this task, which uses the store that is closed next
        # The error is not raised earlier: closing the store awaits, and in a cancelled scope the cancellation would
        # replace the original error.
        tasks.cancel_scope.cancel()


async def _erase(scope: anyio.CancelScope, store: RedisStore, after_seconds: float) -> None:
    with scope:
        await erase_forever(store, after_seconds)


async def _log_advice(store: RedisStore) -> None:
    with suppress(Unavailable):  # the store is unavailable again; its next user reports that
        for warning in await store.advice():
            _log.warning("store.advice", text=warning)


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
