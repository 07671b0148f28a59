"""One reader's connection: ready bytes in, a socket out, and what happens when the reader is slow.

While the socket takes bytes, a write is finished where it is made, without waking a task: the server's `send` is
stepped once, and if it does not block it is done (DESIGN §5). A reader under back-pressure gets a task of its own, the
pump, and a bounded queue. A full queue is dropped, and a fresh snapshot follows when the reader takes bytes again; the
snapshot does not count against the bound, because it is made at that moment and shared. Nobody else waits.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, MutableMapping
from typing import Any, Literal, Protocol, TypeAlias

import anyio
import structlog
from anyio.abc import TaskGroup

from protocol.sse import heartbeat, retry
from server.telemetry import Metrics

__all__ = ["EndReason", "Send", "SnapshotSource", "Subscriber"]

_log = structlog.get_logger()

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Coroutine[Any, Any, None]]  # Any: ASGI's own types

EndReason: TypeAlias = Literal["shutdown", "slow", "left", "not_found", "store", "unfoldable"]
"""Why a stream ends. shutdown, slow, store: come back; not_found, unfoldable: there is nothing to come back for."""

BUFFER_MAX_BYTES = 256_000
SLICE_BYTES = 65_536
STALL_SECONDS = 60.0
"""Queue bound, snapshot slice, and how long a reader may take no byte at all (DESIGN §5)."""

RETRY_MIN_MS, RETRY_MAX_MS = 500, 3_000
"""Told to clients when the server goes down, at random, so that they do not come back all at once (PROTOCOL §4)."""


class SnapshotSource(Protocol):
    """What a subscriber asks of its relay."""

    def snapshot(self) -> tuple[bytes, int]:
        """The block of a snapshot taken now, and the position it stands at."""


class Subscriber:
    """A stream of one chat. `base` is the position of the snapshot that this reader holds; `abort` drops the
    connection without waiting for bytes that nobody takes."""

    def __init__(
        self,
        source: SnapshotSource,
        send: Send,
        tasks: TaskGroup,
        metrics: Metrics,
        *,
        principal_id: str,
        abort: Callable[[], None],
        buffer_max_bytes: int = BUFFER_MAX_BYTES,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self.base = 0
        self.principal_id = principal_id
        self.written_at = time.monotonic()
        self._source = source
        self._send = send
        self._tasks = tasks
        self._metrics = metrics
        self._buffer_max_bytes = buffer_max_bytes
        self._stall_seconds = stall_seconds
        self._abort = abort
        self._queue: deque[bytes] = deque()
        self._queue_bytes = 0
        self._needs_snapshot = False
        self._is_pumping = False
        self._blocked: _Blocked | None = None
        self._greeting = b""
        self.ended: EndReason | None = None

    def start_with_snapshot(self) -> None:
        """Begin, or begin again, with a snapshot of what then is."""
        self._queue.clear()
        self._queue_bytes = 0
        self._needs_snapshot = True
        self._pump_soon()

    def start_at(self, base: int, missed: bytes) -> None:
        """Go on where this reader stopped: `missed` are the blocks after its position."""
        self.base = base
        self.write(missed + heartbeat(int(time.time())))

    def resync(self, reason: str) -> None:
        """What this reader holds cannot be continued."""
        self._metrics.resyncs.labels(reason).inc()
        self.start_with_snapshot()

    def write(self, data: bytes) -> None:
        """Hand over ready blocks. Never waits."""
        if self.ended is not None or self._needs_snapshot:
            return
        if self._is_pumping:
            self._queue.append(data)
            self._queue_bytes += len(data)
            if self._queue_bytes > self._buffer_max_bytes:
                self.resync("slow")
            return
        self.written_at = time.monotonic()
        try:
            blocked = _step(self._send(_body(data)))
        except Exception:  # the boundary of a reader: its connection's trouble must not end the others' streams
            _log.exception("subscriber.failed")
            self.end("left")
            return
        if blocked is not None:
            self._blocked = blocked
            self._pump_soon()

    def beat(self, now: float, silence_seconds: float) -> None:
        """A heartbeat, if nothing was written for that long."""
        if not self._is_pumping and now - self.written_at >= silence_seconds:
            self.write(heartbeat(int(time.time())))

    def end(self, reason: EndReason) -> None:
        """End the stream after what is already on its way."""
        if self.ended is None:
            self.ended = reason
            self._tasks.start_soon(self._close, reason)

    async def _close(self, reason: EndReason) -> None:
        with anyio.move_on_after(1.0):
            if not self._is_pumping:
                last = retry(random.randint(RETRY_MIN_MS, RETRY_MAX_MS)) if reason in ("shutdown", "store") else b""
                await self._send({"type": "http.response.body", "body": last, "more_body": False})
        self._tasks.cancel_scope.cancel()

    def _pump_soon(self) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            self._tasks.start_soon(self._pump)

    async def _pump(self) -> None:
        """Write what waits, as fast as the reader takes it, then let `write` do without a task again."""
        try:
            while self.ended is None:
                if self._blocked is not None:
                    blocked, self._blocked = self._blocked, None
                    with anyio.fail_after(self._stall_seconds):
                        await blocked
                elif self._needs_snapshot:
                    data, self.base = self._source.snapshot()
                    self._needs_snapshot = False
                    for start in range(0, len(data), SLICE_BYTES):
                        await self._put(data[start : start + SLICE_BYTES])
                    if not self._greeting:
                        self._greeting = heartbeat(int(time.time()))
                        await self._put(self._greeting)
                elif self._queue:
                    data = b"".join(self._queue)
                    self._queue.clear()
                    self._queue_bytes = 0
                    await self._put(data)
                else:
                    break
        except TimeoutError:
            self.end("slow")
            self._abort()
        finally:
            self._is_pumping = False

    async def _put(self, data: bytes) -> None:
        with anyio.fail_after(self._stall_seconds):
            await self._send(_body(data))
        self.written_at = time.monotonic()


def _body(data: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": True}


class _Blocked:
    """A coroutine that was stepped once outside a task and waits for a future; awaiting this goes on with it."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:  # Any: asyncio's future
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        waits_for = self._waits_for
        while True:
            try:
                sent = yield waits_for
            except BaseException as thrown:
                step = self._coroutine.throw
                try:
                    waits_for = step(thrown)
                except StopIteration:
                    return
            else:
                try:
                    waits_for = self._coroutine.send(sent)
                except StopIteration:
                    return


def _step(coroutine: Coroutine[Any, Any, None]) -> _Blocked | None:
    """Run `coroutine` as far as it goes without waiting; None when that was all of it."""
    try:
        return _Blocked(coroutine, coroutine.send(None))
    except StopIteration:
        return None
