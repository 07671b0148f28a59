"""Deadlines for data from other processes; before one expires, the event loop reads its sockets once more.

A process that was stopped (SIGSTOP, a frozen container, a sleeping laptop), or whose loop was busy, finds its timers
overdue when it goes on, while the answers lie unread in its sockets. An event loop may call timers before it looks at
sockets (libuv does), so a plain timeout would fail answers that are there. The extra moment also lets the loop read
bytes that a paused connection has left in the kernel.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

__all__ = ["LOOK_SECONDS", "Deadline"]

LOOK_SECONDS = 0.1
"""From the end of the time until it is judged: several turns of a loop that was stopped, and nothing to a person beside
the seconds that silence is given."""


class Deadline:
    """Like `asyncio.timeout`, with a last look at the sockets: the block raises TimeoutError when `seconds`, and then
    `LOOK_SECONDS`, have gone by. For one block."""

    def __init__(self, seconds: float, progress: Callable[[], object] | None = None) -> None:
        """`progress` returns how far the block is, such as the bytes received of a large answer. When the time is up
        and this figure has changed since the last call, the block gets another `seconds`."""
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
        if left > 0:  # more was given in the meantime
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._timeout.reschedule(self._loop.time())
