"""Deadlines for data from other processes. Before a deadline expires, the event loop reads its sockets once more.

When a process was stopped (SIGSTOP, a frozen container, a sleeping laptop), or when its loop was busy, its timers are
overdue when it continues, although the answers are already in its sockets, still unread. An event loop may call timers
before it looks at sockets (libuv does), so a plain timeout would report a failure although the answer has arrived. The
extra moment also lets the loop read bytes that a paused connection has left in the kernel.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

__all__ = ["LOOK_SECONDS", "Deadline"]

LOOK_SECONDS = 0.1
"""Additional seconds that a block gets at its deadline: enough for several turns of a loop that was stopped, and
negligible compared with the timeouts."""


class Deadline:
    """Works like `asyncio.timeout`, but reads the sockets once more: the block raises TimeoutError after `seconds` plus
    `LOOK_SECONDS`. For one block."""

    def __init__(self, seconds: float, progress: Callable[[], object] | None = None) -> None:
        """`progress` returns a measure of the block's progress, such as the received bytes of a large answer. If the
        measure has changed when the time is up, the block gets another `seconds`."""
        self._seconds = self._silence_seconds = seconds
        self._progress = progress
        self._seen = None if progress is None else progress()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._begun_at = self._loop.time()
        self._timeout = asyncio.timeout(None)
        await self._timeout.__aenter__()
        self._timer = self._loop.call_later(self._seconds, self._look)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, wrong, trace)

    def allow(self, seconds: float) -> None:
        """Set the time limit of the whole block, counted from its beginning."""
        self._seconds = seconds

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_SECONDS, self._judge)

    def _judge(self) -> None:
        if self._progress is not None and (now := self._progress()) != self._seen:
            self._seen = now
            self._seconds = max(self._seconds, self._loop.time() - self._begun_at + self._silence_seconds)
        left = self._begun_at + self._seconds - self._loop.time()
        if left > 0:  # the limit was extended in the meantime
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._timeout.reschedule(self._loop.time())
