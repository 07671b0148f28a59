"""Sends one append after the other, and repeats each append until the store has answered, even if its caller is
cancelled.

An append without an answer is sent again with the same arguments for a minute (DESIGN §4.2, §4.8). Only `writer.py`
uses this module. When `until_answered` returns, the entry is in the log; when it raises, this writer never writes
again.
"""

import asyncio
import math
import time

import anyio
import structlog

from threadcast.base.telemetry import Metrics
from threadcast.store.ports import Appended, AppendRequest, Fenced, Log
from threadcast_protocol.wire.errors import Unavailable

__all__ = ["GIVE_UP_SECONDS", "RETRY_FIRST_SECONDS", "RETRY_MAX_SECONDS", "Appending"]

_log = structlog.get_logger()

RETRY_FIRST_SECONDS, RETRY_MAX_SECONDS, GIVE_UP_SECONDS = 0.25, 5.0, 60.0
"""Seconds of the first and the longest pause between attempts, and the seconds after which an unanswered append counts
as FENCED (DESIGN §4.8)."""


class Appending:
    """Sends the appends of one writer, which has one append outstanding at a time."""

    def __init__(self, store: Log, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._is_given_up = False
        self._waits: asyncio.Task[object] | anyio.CancelScope | None = None

    def give_up(self) -> None:
        """Stop waiting for the store, now and in the future. A waiting caller gets Fenced."""
        if self._waits is not None and not self._is_given_up:
            self._waits.cancel()
        self._is_given_up = True

    async def until_answered(self, request: AppendRequest) -> Appended:
        """Send `request` until the store has answered. Raises Fenced: another worker owns the log, the store was away
        for a minute, or `give_up` was called.

        A cancelled caller does not cancel the append, because then it would be unknown whether the store carried it
        out. A shielded scope around each append would take 5 % of the worker's CPU time for an event. The shield is
        therefore created only when a caller is cancelled. The same append is then sent again, so that it is in the log
        afterwards even if the first attempt was not carried out (decision 0024).
        """
        pause = 0.0
        cancelled: asyncio.Task[object] | None = None
        if not self._is_given_up:
            self._waits = task = asyncio.current_task()
            try:
                return await self._store.append(request)
            except asyncio.CancelledError:
                cancelled = self._take_back(task)
            except Unavailable:
                self._metrics.store_errors.labels("append").inc()
                pause = RETRY_FIRST_SECONDS
            finally:
                self._waits = None
        try:
            return await self._again(request, pause)
        finally:
            if cancelled is not None:
                cancelled.cancel()

    def _take_back(self, task: "asyncio.Task[object] | None") -> "asyncio.Task[object] | None":
        """Undo the cancellation of `task`. Returns the task if it must be cancelled again after the append, because
        asyncio cancels only once. A cancel scope of anyio repeats its cancellation by itself, and a task that `give_up`
        has cancelled gets Fenced instead."""
        if task is None or (anyio.current_effective_deadline() == -math.inf and not self._is_given_up):
            return None
        task.uncancel()
        return None if self._is_given_up else task

    async def _again(self, request: AppendRequest, pause: float) -> Appended:
        """Repeat an append after its first attempt, shielded from cancellation. Raises as `until_answered`."""
        give_up_at = time.monotonic() + GIVE_UP_SECONDS
        with anyio.CancelScope(shield=True) as self._waits:
            while not self._is_given_up:
                await anyio.sleep(pause)
                pause = min(max(2 * pause, RETRY_FIRST_SECONDS), RETRY_MAX_SECONDS)
                try:
                    return await self._store.append(request)
                except Unavailable as trouble:
                    self._metrics.store_errors.labels("append").inc()
                    if time.monotonic() > give_up_at:
                        _log.error("append.given_up", chat_id=request.chat_id, error=str(trouble))
                        raise Fenced from trouble
        _log.warning("append.given_up", chat_id=request.chat_id, error="the chat is lost, or the worker ends")
        raise Fenced
