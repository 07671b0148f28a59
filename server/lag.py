"""How late the event loop of this process is, and what holds it up: for both halves of the house.

Everything of a process runs on one loop: a tool that blocks it stops every answer, every stream and the worker's beats,
and costs it its chats. A task measures how late it is woken; a thread, which runs even while the loop does not, looks
at what the loop's thread is doing when the task has not been seen for too long. It ends nothing and decides nothing:
the lease and the fence do (DESIGN §4). The rule: one block is one line in the log, with the place in the code, and
neither values nor arguments.
"""

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import structlog

from server.telemetry import Metrics

__all__ = ["BLOCKED_SECONDS", "PROBE_SECONDS", "watched_lag"]

PROBE_SECONDS = 0.25
"""Between measurements: four timers a second, some 50 µs of CPU."""

BLOCKED_SECONDS = 1.0
"""Lag that is worth a line: readers see a pause, and the second beat of a lease is late (lease 3.5 s, beat 1.1 s)."""

PLACES_SHOWN = 4
"""Innermost places of the stack; the outer ones are the loop's own."""

_log = structlog.get_logger()


@asynccontextmanager
async def watched_lag(metrics: Metrics) -> AsyncIterator[None]:
    """The lag is measured for as long as it is entered, by whoever runs the loop in this thread."""
    watch = _Watch(metrics)
    thread = threading.Thread(target=watch.look_forever, name="lag", daemon=True)
    thread.start()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.measure_forever)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
    finally:
        watch.over.set()


class _Watch:
    def __init__(self, metrics: Metrics) -> None:
        self.over = threading.Event()
        self._metrics = metrics
        self._thread_id = threading.get_ident()
        self._due_at = time.monotonic() + PROBE_SECONDS
        self._seen_at_work: list[str] | None = None

    async def measure_forever(self) -> None:
        while True:
            self._due_at = time.monotonic() + PROBE_SECONDS
            await asyncio.sleep(PROBE_SECONDS)
            lag_seconds = max(0.0, time.monotonic() - self._due_at)
            self._metrics.event_loop_lag_seconds.observe(lag_seconds)
            places, self._seen_at_work = self._seen_at_work, None
            if lag_seconds >= BLOCKED_SECONDS:
                self._metrics.event_loop_blocked.inc()
                _log.warning("loop.blocked", lag_seconds=round(lag_seconds, 2), at=places or [])

    def look_forever(self) -> None:
        """In a thread: once for each block, what is on the stack of the loop's thread while it lasts."""
        while not self.over.wait(PROBE_SECONDS):
            late_seconds = time.monotonic() - self._due_at
            if late_seconds >= BLOCKED_SECONDS and self._seen_at_work is None:
                places = self._seen_at_work = _places(self._thread_id)
                # At once, since it may never end.
                _log.warning("loop.is_blocked", lag_seconds=round(late_seconds, 2), at=places)


def _places(thread_id: int) -> list[str]:
    """The innermost places of that thread's stack, the innermost last."""
    frame = sys._current_frames().get(thread_id)
    if frame is None:
        return []
    found = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=PLACES_SHOWN, lookup_lines=False)
    return [f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in reversed(found)]
