"""Opens and closes event streams: sends the headers, makes the connection, counts it and logs its end (NET-2).

The streams of chats and of feeds both use `opened`. The hub must have admitted the caller before.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import structlog
from starlette.types import Receive, Scope, Send

from threadcast.api.edge import Edge
from threadcast.api.errors import tell_started
from threadcast.fanout.connection import ReaderConnection, put_nothing
from threadcast.http.extensions import BEGIN_DIRECT, STREAM_LIFE, abort_of
from threadcast_protocol.wire.principal import Principal

__all__ = ["SSE_HEADERS", "OpenStream", "goodbye", "opened"]

_log = structlog.get_logger()

SSE_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
    (b"connection", b"keep-alive"),
]
"""The headers of an event stream (NET-2). The third stops nginx from buffering the stream."""


class OpenStream:
    """An event stream whose answer has begun: a context manager that yields the connection. When the connection ends,
    the block ends without an error.

    A generator and a cancel scope of anyio, in place of this class, would take some 8 % of the CPU of a join
    (`bench.join`), and memory for each open stream. The short tasks of the stream, its pump and its end, run in the
    hub's task group, because a task group for each stream would take 1.2 kB (`bench.memory`).
    """

    __slots__ = ("_begun_at", "_cancelling", "_edge", "_is_cancelled", "_kept_alive", "_task", "_told", "connection")

    connection: ReaderConnection
    """Set by `opened`."""

    def __init__(self, edge: Edge, told: Mapping[str, object]) -> None:
        """The fields of `told` are added to the log line about the stream's end."""
        self._edge = edge
        self._told = told
        self._begun_at = time.monotonic()
        self._is_cancelled = False
        self._task: asyncio.Task[object] | None = None

    def __enter__(self) -> ReaderConnection:
        task = self._task = asyncio.current_task()
        self._cancelling = 0 if task is None else task.cancelling()
        self._edge.metrics.subscribers_inflight.inc()
        self._kept_alive = self._edge.hub.kept_alive(self.connection)
        self._kept_alive.__enter__()
        return self.connection

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        task, self._task = self._task, None
        self._kept_alive.__exit__(None, None, None)
        metrics = self._edge.metrics
        metrics.subscribers_inflight.dec()
        reason = self.connection.ended or "left"
        self.connection.close()
        metrics.streams_ended.labels(reason).inc()
        duration_ms = int((time.monotonic() - self._begun_at) * 1000)
        _log.info("subscription.ended", reason=reason, duration_ms=duration_ms, **self._told)
        del self.connection, self._kept_alive  # the connection refers to this object: both would wait for the collector
        if not self._is_cancelled or task is None:
            return False
        # An error of the block goes on, and so does a cancellation if somebody else has cancelled the task, too.
        return task.uncancel() == self._cancelling and kind is asyncio.CancelledError

    @property
    def cancel_scope(self) -> "OpenStream":
        """This object, whose `cancel` ends the block, as `StreamTasks` requires it."""
        return self

    def cancel(self) -> None:
        """End the block in the next turn of the event loop. Safe to repeat, also after the block."""
        if self._task is not None:
            # Not now: if the block cancels itself as its last act, the cancellation would reach the code after it.
            self._task.get_loop().call_soon(self._cancel_now)

    def _cancel_now(self) -> None:
        if self._task is not None and not self._is_cancelled:
            self._is_cancelled = True
            self._task.cancel()

    def start_soon(self, work: Callable[..., Coroutine[Any, Any, object]], *arguments: object) -> None:  # Any: as anyio
        """Run a coroutine function in the hub's task group. Ends the block instead if the process is ending."""
        if self._edge.hub.tasks is None:
            self.cancel()
        else:
            self._edge.hub.tasks.start_soon(work, *arguments)


async def opened(
    edge: Edge,
    principal: Principal,
    scope: Scope,
    send: Send,
    *,
    name: str = "",
    changes_blocks: bool = False,
    **told: object,
) -> OpenStream:
    """Begin the answer. `name` is the client's name for the stream. `changes_blocks`: `send` changes blocks, so all
    blocks must be sent through it. The fields of `told` are added to the log line about the stream's end."""
    tell_started(scope, 200)
    start = {"type": "http.response.start", "status": 200, "headers": SSE_HEADERS}
    extensions = scope.get("extensions", {})
    life = extensions.get(STREAM_LIFE)
    if changes_blocks or BEGIN_DIRECT not in extensions:
        direct = None
        await send(start)
    else:
        direct = await extensions[BEGIN_DIRECT](send, start)
    scope["headers"] = []  # frees them, since a stream keeps its scope
    stream = OpenStream(edge, {"path": scope["path"], **told})
    stream.connection = ReaderConnection(
        send if changes_blocks or life is None else life.send,
        stream,
        edge.metrics,
        put=put_nothing if direct is None else direct.put,
        direct=direct,
        principal_id=principal.id,
        abort=abort_of(scope),
        name=name,
        buffer_max_bytes=edge.limits.subscriber_buffer_bytes,
        stall_seconds=edge.limits.subscriber_stall_seconds,
    )
    return stream


async def goodbye(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
