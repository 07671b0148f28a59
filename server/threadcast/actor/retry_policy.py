"""Repeats calls to an unavailable store for at most a minute. The calls must be safe to repeat.

The parts of one actor share a policy. After a minute the actor gives up the chat, because another worker may own the
chat by then.
"""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from threadcast.actor.append import GIVE_UP_SECONDS, RETRY_FIRST_SECONDS, RETRY_MAX_SECONDS
from threadcast.base.telemetry import Metrics
from threadcast.store.ports import Lost
from threadcast_protocol.wire.errors import Unavailable

__all__ = ["RetryPolicy"]

_T = TypeVar("_T")


class RetryPolicy:
    """The retry policy of one actor."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._over = anyio.Event()

    def give_up(self) -> None:
        """Stop repeating calls and end the waits, because another worker has the lease or this worker ends."""
        self._over.set()

    async def until_answered(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Repeat `call` while the store is unavailable, and return its result. Raises Lost after a minute, or after
        `give_up`."""
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
