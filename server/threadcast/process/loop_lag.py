"""Measures the lag of the process's event loop, and logs the code that blocks it.

A process runs on one loop: a tool that blocks the loop stops every answer, every stream and the worker's heartbeats, so
the worker loses its chats. A task measures how late the loop wakes it. When the task is overdue, a thread, which runs
even while the loop is blocked, reads the stack of the loop's thread. This module only reports; leases and fences
protect the chats (DESIGN §4). Each blockage is logged once, with the place in the code but without values and
arguments.
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

from threadcast.base.telemetry import Metrics

__all__ = ["BLOCKED_SECONDS", "PROBE_SECONDS", "watched_lag"]

PROBE_SECONDS = 0.25
"""Seconds between measurements: four timers a second take some 50 µs of CPU."""

BLOCKED_SECONDS = 1.0
"""Seconds of lag from which a blockage is logged: readers notice a pause, and the second heartbeat of a lease is late
(lease 3.5 s, heartbeat 1.1 s)."""

FRAMES_SHOWN = 4
"""Number of innermost frames that are logged; the outer frames belong to the loop."""

_log = structlog.get_logger()


@asynccontextmanager
async def watched_lag(metrics: Metrics) -> AsyncIterator[None]:
    """Measure the lag of this thread's event loop while the block runs."""
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
            frames, self._seen_at_work = self._seen_at_work, None
            if lag_seconds >= BLOCKED_SECONDS:
                self._metrics.event_loop_blocked.inc()
                _log.warning("loop.blocked", lag_seconds=round(lag_seconds, 2), at=frames or [])

    def look_forever(self) -> None:
        """Log the stack of the loop's thread once for each blockage. Runs in a thread."""
        while not self.over.wait(PROBE_SECONDS):
            late_seconds = time.monotonic() - self._due_at
            if late_seconds >= BLOCKED_SECONDS and self._seen_at_work is None:
                frames = self._seen_at_work = _frames(self._thread_id)
                # Logged at once, since the blockage may never end.
                _log.warning("loop.is_blocked", lag_seconds=round(late_seconds, 2), at=frames)


def _frames(thread_id: int) -> list[str]:
    """Return the innermost frames of the thread's stack, the innermost last."""
    frame = sys._current_frames().get(thread_id)
    if frame is None:
        return []
    found = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=FRAMES_SHOWN, lookup_lines=False)
    return [f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in reversed(found)]
