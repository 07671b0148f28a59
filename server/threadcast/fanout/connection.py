"""Writes the encoded blocks of one open stream to its socket, and handles slow readers.

While the socket accepts bytes, a write completes without waking a task: `put` passes the block to the kernel (DESIGN
§5, decision 0021). Blocks for a slow reader wait in a bounded queue, which all chats of the stream share. A task, the
pump, writes this queue, by ASGI's `send` if the socket is not accessible. A full queue is dropped, and each affected
chat gets a fresh snapshot when the reader accepts bytes again. Snapshots do not count against the bound, because they
are made at that moment and shared. Other readers never wait for a slow reader.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import anyio
import structlog

from threadcast.base.deadlines import Deadline
from threadcast.base.telemetry import Metrics
from threadcast.settings.limits import DEFAULT_LIMITS
from threadcast_protocol.framing.sse import heartbeat, retry

__all__ = ["ChatOnStream", "DirectSend", "EndReason", "Put", "ReaderConnection", "Send", "StreamTasks", "put_nothing"]

_log = structlog.get_logger()

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]  # Any: ASGI's own type


Put: TypeAlias = Callable[[bytes], bool]
"""Writes a whole block at once, or returns False without writing."""


class DirectSend(Protocol):
    """Writes directly to the socket of one HTTP response, without ASGI (`http/direct_send.py`)."""

    def is_ready(self) -> bool:
        """Return whether `put_large` may be called now."""

    def put_large(self, pieces: Sequence[bytes | memoryview]) -> bool:
        """Write any number of bytes without copying them. Returns False if the caller must await `drained`."""

    async def drained(self) -> None:
        """Wait until the reader has taken nearly all bytes, or has disconnected."""

    def unsent(self) -> int:
        """Return the number of bytes that wait for the reader."""


EndReason: TypeAlias = Literal[
    "shutdown", "slow", "left", "not_found", "store", "newer_version", "unfoldable", "replaced", "own_now"
]
"""Reasons for the end of a stream. The client reconnects after `shutdown`, `slow`, `store`, `newer_version` and
`own_now`. The client does not reconnect after `not_found`, `unfoldable` and `replaced`. The reason `newer_version`
means that another process may have the version that wrote the chat. The reason `own_now` means that the id belonged to
another principal's chat, and now belongs to a chat of the reader. The reason `replaced` means that the client has
opened another stream of the same name."""

COME_BACK: frozenset[EndReason] = frozenset({"shutdown", "store", "newer_version", "own_now"})
"""The reasons for which the server sends a reconnect delay when it ends a stream. The server sends no delay for `slow`,
because a slow reader accepts no bytes. Such a reader chooses its own delay."""

SLICE_BYTES = 65_536
"""The number of bytes of a snapshot that are written at a time (DESIGN §5)."""

CLOSE_SECONDS = 1.0
"""Seconds that an ending stream waits for its reader to accept the present write, so that the final `retry` line
arrives."""

RETRY_MIN_MS, RETRY_MAX_MS = 500, 3_000
"""The bounds of the reconnect delay at a shutdown. The delay is random, so that clients do not all reconnect at once
(PROTOCOL §4). Each stream also begins with a `retry` line of the lower bound, because browsers and npm's eventsource
otherwise wait 3 s after every lost connection."""


def put_nothing(block: bytes) -> bool:
    """Return False, so that the pump writes every block. This function replaces the direct write when the socket is not
    accessible."""
    return False


class ChatOnStream(Protocol):
    """The methods of a chat that its connection calls."""

    def resync(self, reason: str) -> None:
        """Begin this chat again with a snapshot, because its queued blocks were dropped or cannot be continued."""

    def take_snapshot(self) -> tuple[bytes, int, bytes]:
        """Return a snapshot of the present state as three values: a buffer, the number of bytes to write from the
        buffer, and the bytes to write afterwards."""


class Cancels(Protocol):
    """The method of a cancel scope that ends a stream."""

    def cancel(self) -> object: ...


class StreamTasks(Protocol):
    """The parts of a task group that a stream uses. Cancelling `cancel_scope` ends the stream."""

    @property
    def cancel_scope(self) -> Cancels: ...

    def start_soon(
        self, work: Callable[..., Coroutine[Any, Any, object]], *arguments: object
    ) -> object: ...  # Any, as in anyio's own signature


class ReaderConnection:
    """The connection of one reader. `abort` closes the connection without waiting for unread bytes. `name` is the
    stream's name, or '' if the client chose none. On a stream of many chats, `stream_id_words` maps each chat id to the
    chat's part of the SSE id. `drops` counts how often the queue was dropped."""

    def __init__(
        self,
        send: Send,
        tasks: StreamTasks,
        metrics: Metrics,
        *,
        principal_id: str,
        abort: Callable[[], None],
        put: Put = put_nothing,
        direct: DirectSend | None = None,
        name: str = "",
        buffer_max_bytes: int = DEFAULT_LIMITS.subscriber_buffer_bytes,
        stall_seconds: float = DEFAULT_LIMITS.subscriber_stall_seconds,
    ) -> None:
        self.principal_id = principal_id
        self.name = name
        self.metrics = metrics
        self.ended: EndReason | None = None
        self.stream_id_words: dict[str, bytes] = {}
        self.drops = 0
        self._written_at = time.monotonic()
        self._has_written = False
        self._send = send
        self._put_now = put
        self._direct = direct
        self._tasks = tasks
        self._buffer_max_bytes = buffer_max_bytes
        self._stall_seconds = stall_seconds
        self._abort = abort
        self._queue: list[bytes] = []
        self._queue_bytes = 0
        self._queued_of: dict[ChatOnStream, None] = {}
        self._want_snapshots: list[ChatOnStream] = []
        self._is_pumping = False
        self._pumped: anyio.Event | None = None
        self._is_greeted = False

    def id_line(self) -> bytes:
        """Return the id line that ends a block on a stream of many chats. The id has the reader's positions in all of
        these chats."""
        return b"\nid: %b\n\n" % b".".join(self.stream_id_words.values())

    def want_snapshot(self, subscriber: ChatOnStream, *, drop: bool) -> None:
        """Send a fresh snapshot of one chat as soon as the reader accepts bytes. If `drop` is True, discard the queue
        first."""
        if drop and self._queue:
            self._drop_queue()
            self.drops += 1
        if subscriber not in self._want_snapshots:
            self._want_snapshots.append(subscriber)
        if not self._is_pumping and not self._queue and self.ended is None and self._direct is not None:
            try:  # a reader that joins needs a task only if it does not take its snapshot at once
                if self._direct.is_ready() and self._put_large(self._direct):
                    return
            except Exception:  # as in `write`
                _log.exception("subscriber.failed")
                self.end("left")
                return
        self._pump_soon()

    def forget(self, subscriber: ChatOnStream) -> None:
        """Remove a chat that is no longer on this stream."""
        self._queued_of.pop(subscriber, None)
        if subscriber in self._want_snapshots:
            self._want_snapshots.remove(subscriber)

    def write(self, data: bytes, subscriber: ChatOnStream | None = None) -> None:
        """Write encoded blocks of a chat without waiting. Blocks without `subscriber` are ephemeral and may be lost."""
        if self.ended is not None or not data:
            return
        if not self._is_pumping:
            try:
                is_put = self._put_now(data)
            except Exception:  # the boundary of a reader: an error of its connection must not end other streams
                _log.exception("subscriber.failed")
                self.end("left")
                return
            if is_put:
                self._has_written = True
                return
        self._queue.append(data)
        self._queue_bytes += len(data)
        if subscriber is not None:
            self._queued_of[subscriber] = None
        if self._queue_bytes > self._buffer_max_bytes:
            self._overflow()
        self._pump_soon()

    def beat(self, now: float, silence_seconds: float) -> None:
        """Send a heartbeat if nothing was written for `silence_seconds`. The hub calls this method often. Writes since
        the last call are treated as made at the time of this call, so that no write needs to read the clock."""
        if self._has_written:
            self._has_written = False
            self._written_at = now
        if not self._is_pumping and now - self._written_at >= silence_seconds:
            self.write(heartbeat(int(time.time())))

    def end(self, reason: EndReason) -> None:
        """End the stream after the present write."""
        if self.ended is None:
            self.ended = reason
            self._tasks.start_soon(self._close, reason)

    def close(self) -> None:
        """Stop writing and drop the queue, because the connection has ended."""
        if self.ended is None:
            self.ended = "left"
        self._drop_queue()
        self._want_snapshots.clear()

    def _overflow(self) -> None:
        lost = list(self._queued_of)
        self._drop_queue()
        self.drops += 1
        for subscriber in lost:
            subscriber.resync("slow")

    def _drop_queue(self) -> None:
        self._queue.clear()
        self._queued_of.clear()
        self._queue_bytes = 0

    async def _close(self, reason: EndReason) -> None:
        with anyio.move_on_after(CLOSE_SECONDS):
            if self._is_pumping and self._pumped is not None:
                await self._pumped.wait()
            last = retry(random.randint(RETRY_MIN_MS, RETRY_MAX_MS)) if reason in COME_BACK else b""
            await self._send({"type": "http.response.body", "body": last, "more_body": False})
        self._tasks.cancel_scope.cancel()

    def _pump_soon(self) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            self._pumped = anyio.Event()
            self._tasks.start_soon(self._pump)

    async def _pump(self) -> None:
        """Write the queue as fast as the reader accepts bytes. Afterwards `write` works without a task again."""
        try:
            if self._direct is not None:
                await self._drained(self._direct)
            while self.ended is None and (self._queue or self._want_snapshots):
                if self._direct is not None:
                    self._put_large(self._direct)
                    await self._drained(self._direct)
                    continue
                data = b"".join(self._queue)
                self._drop_queue()
                # The snapshot is taken at the same moment, so that the id at its end covers exactly the blocks written
                # before it.
                snapshot = self._want_snapshots.pop(0).take_snapshot() if self._want_snapshots else None
                if data:
                    await self._put(data)
                if snapshot is not None:
                    await self._put_snapshot(*snapshot)
        except TimeoutError:
            self.end("slow")
            self._abort()
        except Exception:  # as in `write`
            _log.exception("subscriber.failed")
            self.end("left")
        finally:
            self._is_pumping = False
            if self._pumped is not None:
                self._pumped.set()
                self._pumped = None

    def _put_large(self, direct: DirectSend) -> bool:
        """Write the queue, and then a snapshot of the present state if a chat needs one. Returns False if the caller
        must wait for the reader."""
        pieces: list[bytes | memoryview] = [*self._queue]
        self._drop_queue()
        if self._want_snapshots:
            data, length, last = self._want_snapshots.pop(0).take_snapshot()
            pieces += (data if length == len(data) else memoryview(data)[:length], last)
            if not self._is_greeted:
                self._is_greeted = True
                pieces.append(_greeting())
        self._has_written = True
        return direct.put_large(pieces)

    async def _drained(self, direct: DirectSend) -> None:
        """Wait until the reader has accepted the written bytes. Raises TimeoutError if the reader accepts less than
        `SLICE_BYTES` within the time for which a reader may stall."""
        await asyncio.sleep(0)  # the transport writes at the end of an iteration of the event loop
        while unsent := direct.unsent():
            try:
                async with Deadline(self._stall_seconds):
                    await direct.drained()
                return
            except TimeoutError:
                if unsent - direct.unsent() < SLICE_BYTES:
                    raise

    async def _put_snapshot(self, data: bytes, length: int, last: bytes) -> None:
        for start in range(0, length, SLICE_BYTES):
            await self._put(data[start : min(start + SLICE_BYTES, length)])
        if last:
            await self._put(last)
        if not self._is_greeted:
            self._is_greeted = True
            await self._put(_greeting())

    def greet(self) -> None:
        """Write the first lines of a stream that begins without a snapshot."""
        if not self._is_greeted:
            self._is_greeted = True
            self.write(_greeting())

    async def _put(self, data: bytes) -> None:
        async with Deadline(self._stall_seconds):
            await self._send(_body(data))
        self._has_written = True


def _greeting() -> bytes:
    """Return the `retry` line and then the first heartbeat. The heartbeat follows because a `retry` line that ends a
    stream tells the client to reconnect later."""
    return retry(RETRY_MIN_MS) + heartbeat(int(time.time()))


def _body(data: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": True}
