"""Opens and closes event streams: sends the headers, makes the connection, counts it and logs its end (NET-2).

The streams of chats and of feeds both use `opened`. The hub must have admitted the caller before.
"""

import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import structlog
from starlette.types import Receive, Scope, Send

from threadcast.api.edge import Edge
from threadcast.api.errors import tell_started
from threadcast.fanout.connection import ReaderConnection, put_nothing
from threadcast.fanout.hub import Hub
from threadcast.http.extensions import BEGIN_DIRECT, STREAM_LIFE, abort_of
from threadcast_protocol.wire.principal import Principal

__all__ = ["SSE_HEADERS", "goodbye", "opened"]

_log = structlog.get_logger()

SSE_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
    (b"connection", b"keep-alive"),
]
"""The headers of an event stream (NET-2). The third stops nginx from buffering the stream."""


class _StreamTasks:
    """The short tasks of one stream: its pump and its end. They run in the hub's task group, because a task group for
    each stream would take 1.2 kB (`bench.memory`). `cancel_scope` ends the stream."""

    __slots__ = ("_hub", "cancel_scope")

    def __init__(self, hub: Hub, cancel_scope: anyio.CancelScope) -> None:
        self._hub = hub
        self.cancel_scope = cancel_scope

    def start_soon(self, work: Callable[..., Coroutine[Any, Any, object]], *arguments: object) -> None:  # Any: as anyio
        if self._hub.tasks is None:  # the process ends
            self.cancel_scope.cancel()
        else:
            self._hub.tasks.start_soon(work, *arguments)


@asynccontextmanager
async def opened(
    edge: Edge,
    principal: Principal,
    scope: Scope,
    send: Send,
    *,
    name: str = "",
    changes_blocks: bool = False,
    **told: object,
) -> AsyncIterator[ReaderConnection]:
    """Begin the answer, and cancel the block when the connection ends. `name` is the client's name for the stream.
    `changes_blocks`: `send` changes blocks, so all blocks must be sent through it. The fields of `told` are added to
    the log line about the stream's end."""
    with anyio.CancelScope() as cancel_scope:
        tell_started(scope, 200)
        start = {"type": "http.response.start", "status": 200, "headers": SSE_HEADERS}
        extensions = scope.get("extensions", {})
        life = extensions.get(STREAM_LIFE)
        if changes_blocks or BEGIN_DIRECT not in extensions:
            direct = None
            await send(start)
        else:
            direct = await extensions[BEGIN_DIRECT](send, start)
        connection = ReaderConnection(
            send if changes_blocks or life is None else life.send,
            _StreamTasks(edge.hub, cancel_scope),
            edge.metrics,
            put=put_nothing if direct is None else direct.put,
            direct=direct,
            principal_id=principal.id,
            abort=abort_of(scope),
            name=name,
            buffer_max_bytes=edge.limits.subscriber_buffer_bytes,
            stall_seconds=edge.limits.subscriber_stall_seconds,
        )
        scope["headers"] = []
        path = scope["path"]
        del extensions, scope, send, start  # frees the middleware, which is no longer needed: a kilobyte per stream
        edge.metrics.subscribers_inflight.inc()
        begun_at = time.monotonic()
        try:
            with edge.hub.kept_alive(connection):
                yield connection
        finally:
            edge.metrics.subscribers_inflight.dec()
            reason = connection.ended or "left"
            connection.close()
            edge.metrics.streams_ended.labels(reason).inc()
            duration_ms = int((time.monotonic() - begun_at) * 1000)
            _log.info("subscription.ended", path=path, reason=reason, duration_ms=duration_ms, **told)


async def goodbye(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
