"""One append after the other, each until the store has answered: nobody who waits for one may leave it half known.

An append without an answer is sent again with the same arguments, for a minute (DESIGN §4.2, §4.8). `writer.py` says
what is appended and is the only caller; this file does not look inside. The rule: when `until_answered` returns, the
entry stands in the log; when it raises, this writer will not write again.
"""

import asyncio
import math
import time

import anyio
import structlog

from protocol.errors import Unavailable
from server.store.port import Appended, AppendRequest, Fenced, Store
from server.telemetry import Metrics

__all__ = ["GIVE_UP_SECONDS", "RETRY_FIRST_SECONDS", "RETRY_MAX_SECONDS", "Appending"]

_log = structlog.get_logger()

RETRY_FIRST_SECONDS, RETRY_MAX_SECONDS, GIVE_UP_SECONDS = 0.25, 5.0, 60.0
"""An append without an answer is repeated this long, then counts as FENCED (DESIGN §4.8)."""


class Appending:
    """Of one writer, which has one append outstanding at a time."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._is_given_up = False
        self._waits: asyncio.Task[object] | anyio.CancelScope | None = None

    def give_up(self) -> None:
        """Wait for the store no longer, now and from now on: who waits hears Fenced."""
        if self._waits is not None and not self._is_given_up:
            self._waits.cancel()
        self._is_given_up = True

    async def until_answered(self, request: AppendRequest) -> Appended:
        """Raises Fenced, also when the store stays away for a minute, or after `give_up`.

        A cancelled caller does not cancel the append, since nobody would know whether it happened. A shield around each
        would be a twentieth of what an event costs a worker; so one is put up when a caller is cancelled, and the same
        append is sent again: carried out or not the first time, afterwards it is (decision 0024).
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
        """Returns the task if it must be cancelled anew once the append is known: a tool's is cancelled one time only.
        A scope of anyio does so itself, and what `give_up` cancelled hears Fenced instead."""
        if task is None or (anyio.current_effective_deadline() == -math.inf and not self._is_given_up):
            return None
        task.uncancel()
        return None if self._is_given_up else task

    async def _again(self, request: AppendRequest, pause: float) -> Appended:
        """After a first attempt, heeding no cancellation. Raises as `until_answered`."""
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
