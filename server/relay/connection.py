"""One open stream: ready bytes in, a socket out, and what happens when the reader is slow.

While the socket takes bytes, a write is finished where it is made, without waking a task: `put` gives the block to the
kernel (DESIGN §5, decision 0021). A reader that does not take it gets a task of its own, the pump, which uses ASGI's
`send`, and a bounded queue, shared by all chats of the stream. A full queue is dropped, and each chat that lost
something follows with a fresh snapshot when the reader takes bytes again; snapshots do not count against the bound,
because they are made at that moment and shared. Nobody else waits. A chat is to it only what gives snapshots.
"""

import random
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Literal, Protocol, TypeAlias

import anyio
import structlog
from anyio.abc import TaskGroup

from protocol.sse import heartbeat, retry
from server.deadlines import Deadline
from server.telemetry import Metrics

__all__ = ["ChatOnStream", "Connection", "EndReason", "Put", "Send", "put_nothing"]

_log = structlog.get_logger()

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]  # Any: ASGI's own type

Put: TypeAlias = Callable[[bytes], bool]
"""Takes all of a block at once, or (False) nothing of it."""

EndReason: TypeAlias = Literal[
    "shutdown", "slow", "left", "not_found", "store", "newer_version", "unfoldable", "replaced"
]
"""Why a stream ends. shutdown, slow, store, newer_version (a process of that version can show the chat): come back;
not_found, unfoldable, replaced (the client opened a stream of the same name): there is nothing to come back for."""

COME_BACK: frozenset[EndReason] = frozenset({"shutdown", "store", "newer_version"})
"""Ends that tell when. Who was slow comes back by itself: it takes no bytes that could tell it."""

BUFFER_MAX_BYTES = 256_000
SLICE_BYTES = 65_536
STALL_SECONDS = 60.0
"""Queue bound, snapshot slice, and how long a reader may take no byte at all (DESIGN §5)."""

CLOSE_SECONDS = 1.0
"""How long an ending stream waits for its reader to take what is being written, so that it hears the goodbye."""

RETRY_MIN_MS, RETRY_MAX_MS = 500, 3_000
"""Told to clients when the server goes down, at random, so that they do not come back all at once (PROTOCOL §4). Each
stream also begins with the first of them: browsers and npm's eventsource otherwise wait 3 s after every cut."""


def put_nothing(block: bytes) -> bool:
    """Where no socket is within reach, every block goes through the pump."""
    return False


class ChatOnStream(Protocol):
    """What a connection asks of one of its chats."""

    def resync(self, reason: str) -> None:
        """What was queued for this chat is lost."""

    def take_snapshot(self) -> tuple[bytes, int, bytes]:
        """A snapshot of what now is: a buffer, how much of it to write, and what to write after that."""


class Connection:
    """`abort` drops the connection without waiting for bytes that nobody takes. `name` is the client's, if it gave one;
    `places` the words of its id, on a stream of many chats; `drops` how often its queue was thrown away."""

    def __init__(
        self,
        send: Send,
        tasks: TaskGroup,
        metrics: Metrics,
        *,
        principal_id: str,
        abort: Callable[[], None],
        put: Put = put_nothing,
        name: str = "",
        buffer_max_bytes: int = BUFFER_MAX_BYTES,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self.principal_id = principal_id
        self.name = name
        self.metrics = metrics
        self.ended: EndReason | None = None
        self.places: dict[str, bytes] = {}
        self.drops = 0
        self._written_at = time.monotonic()
        self._has_written = False
        self._send = send
        self._put_now = put
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
        """The end of a block on a stream of many chats: where its reader stands in all of them."""
        return b"\nid: %b\n\n" % b".".join(self.places.values())

    def want_snapshot(self, subscriber: ChatOnStream, *, drop: bool) -> None:
        """A fresh snapshot for one chat, as soon as the reader takes bytes. `drop`: what waits has become useless."""
        if drop and self._queue:
            self._drop_queue()
            self.drops += 1
        if subscriber not in self._want_snapshots:
            self._want_snapshots.append(subscriber)
        self._pump_soon()

    def forget(self, subscriber: ChatOnStream) -> None:
        """The chat is not on this stream any more."""
        self._queued_of.pop(subscriber, None)
        if subscriber in self._want_snapshots:
            self._want_snapshots.remove(subscriber)

    def write(self, data: bytes, subscriber: ChatOnStream | None = None) -> None:
        """Hand over ready blocks, of one chat's log or (None) such as may be lost. Never waits."""
        if self.ended is not None or not data:
            return
        if not self._is_pumping:
            try:
                is_put = self._put_now(data)
            except Exception:  # the boundary of a reader: its connection's trouble must not end the others' streams
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
        """A heartbeat, if nothing was written for that long. Called often: what was written since the last call counts
        as written now, so that no write has to ask for the time."""
        if self._has_written:
            self._has_written = False
            self._written_at = now
        if not self._is_pumping and now - self._written_at >= silence_seconds:
            self.write(heartbeat(int(time.time())))

    def end(self, reason: EndReason) -> None:
        """End the stream after what is being written."""
        if self.ended is None:
            self.ended = reason
            self._tasks.start_soon(self._close, reason)

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
        """Write what waits, as fast as the reader takes it, then let `write` do without a task again."""
        try:
            while self.ended is None and (self._queue or self._want_snapshots):
                data = b"".join(self._queue)
                self._drop_queue()
                # Taken at the same moment: the id at its end tells of all that is written before it, and of no more.
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

    async def _put_snapshot(self, data: bytes, length: int, last: bytes) -> None:
        for start in range(0, length, SLICE_BYTES):
            await self._put(data[start : min(start + SLICE_BYTES, length)])
        if last:
            await self._put(last)
        if not self._is_greeted:
            self._is_greeted = True
            await self._put(_greeting())

    def greet(self) -> None:
        """Greet the reader of a stream that begins without a snapshot."""
        if not self._is_greeted:
            self._is_greeted = True
            self.write(_greeting())

    async def _put(self, data: bytes) -> None:
        async with Deadline(self._stall_seconds):
            await self._send(_body(data))
        self._has_written = True


def _greeting() -> bytes:
    """Return the `retry` line and the first heartbeat, in this order: a `retry` that nothing follows would be a
    goodbye."""
    return retry(RETRY_MIN_MS) + heartbeat(int(time.time()))


def _body(data: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": data, "more_body": True}
