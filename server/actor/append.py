"""One append after the other, each until the store has answered: nobody who waits for one may leave it half known.

An append without an answer is sent again with the same arguments, for a minute (DESIGN §4.2, §4.8). `writer.py` says
what is appended and is the only caller; this file does not look inside. The rule: when `until_answered` returns, the
entry stands in the log; when it raises, this writer will not write again.
"""

import asyncio
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
        self._is_given_up = True
        if self._waits is not None:
            self._waits.cancel()

    async def until_answered(self, request: AppendRequest) -> Appended:
        """Raises Fenced, also when the store stays away for a minute, or after `give_up`.

        A cancelled caller does not cancel the append, since nobody would know whether it happened. A shield around each
        would be a twentieth of what an event costs a worker; so one is put up when a caller is cancelled, and the same
        append is sent again: carried out or not the first time, afterwards it is (decision 0024).
        """
        pause = 0.0
        if not self._is_given_up:
            self._waits = task = asyncio.current_task()
            try:
                return await self._store.append(request)
            except asyncio.CancelledError:
                self._take_back(task)
            except Unavailable:
                self._metrics.store_errors.labels("append").inc()
                pause = RETRY_FIRST_SECONDS
            finally:
                self._waits = None
        return await self._again(request, pause)

    def _take_back(self, task: "asyncio.Task[object] | None") -> None:
        """If it was `give_up` that cancelled, nothing of that stays with the task; a scope of anyio cancels again."""
        if self._is_given_up and task is not None:
            task.uncancel()

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
