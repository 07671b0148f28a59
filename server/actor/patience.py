"""Patience with a store that is away: a call that is safe to repeat is repeated, for a minute at the most.

Shared by the parts of one actor. It knows no call; whoever waits here loses the chat when the time is up, for by then
somebody else may own it.
"""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from protocol.errors import Unavailable
from server.actor.append import GIVE_UP_SECONDS, RETRY_FIRST_SECONDS, RETRY_MAX_SECONDS
from server.store.port import Lost
from server.telemetry import Metrics

__all__ = ["Patience"]

_T = TypeVar("_T")


class Patience:
    """Of one actor."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._over = anyio.Event()

    def give_up(self) -> None:
        """The lease went to somebody else, or the worker ends: nothing is worth a repeat, nor the wait before one."""
        self._over.set()

    async def until_answered(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Repeat `call` while the store is away. Raises Lost after a minute of that."""
        give_up_at = time.monotonic() + GIVE_UP_SECONDS
        pause = RETRY_FIRST_SECONDS
        while True:
            try:
                return await call()
            except Unavailable as trouble:
                self._metrics.store_errors.labels("actor").inc()
                with anyio.move_on_after(pause):
                    await self._over.wait()
                if self._over.is_set() or time.monotonic() > give_up_at:
                    raise Lost from trouble
                pause = min(2 * pause, RETRY_MAX_SECONDS)
