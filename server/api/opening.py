"""An event stream from its first byte to its goodbye: headers, connection, counting, the line in the log (NET-2).

Streams of chats and feeds are opened here, whatever goes into them. A task group lives as long as the stream: what runs
in it ends with the connection. Whoever opens a stream was admitted by the hub before.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import structlog
from anyio.abc import TaskGroup
from starlette.types import ASGIApp, Receive, Scope, Send

from protocol.principal import Principal
from server.api.edge import Edge
from server.api.errors import tell_started
from server.relay.connection import Connection, Put, put_nothing

__all__ = ["ABORT", "OUTLET", "SSE_HEADERS", "begin", "goodbye", "lingering", "opened"]

_log = structlog.get_logger()

ABORT = "threadcast.abort"
"""ASGI extension by which `http.py` lends us the way to drop a connection that takes no bytes."""

OUTLET = "threadcast.outlet"
"""ASGI extension, called when the answer has begun: the short way to its socket (`server/outlet.py`)."""

SSE_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
    (b"connection", b"keep-alive"),
]
"""NET-2. The third keeps nginx from collecting the stream."""


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
) -> AsyncIterator[tuple[Connection, TaskGroup]]:
    """The answer has begun; when its connection ends, what runs in the block is cancelled. `name` is the client's name
    for the stream; `changes_blocks`: `send` does, so that nothing may go around it; `told` stands in the log's line."""
    async with anyio.create_task_group() as tasks:
        tell_started(scope, 200)
        await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        extensions = scope.get("extensions", {})
        life = extensions.get(_LIFE)
        connection = Connection(
            send if changes_blocks or life is None else life.send,
            tasks,
            edge.metrics,
            put=put_nothing if changes_blocks else extensions.get(OUTLET, _no_outlet)(),
            principal_id=principal.id,
            abort=extensions.get(ABORT, _cannot_abort),
            name=name,
            buffer_max_bytes=edge.buffer_max_bytes,
            stall_seconds=edge.stall_seconds,
        )
        scope["headers"] = []
        del extensions, send  # what middleware put around the answer is not needed any more: a kilobyte
        edge.metrics.subscribers_inflight.inc()
        begun_at = time.monotonic()
        try:
            with edge.hub.kept_alive(connection):
                yield connection, tasks
        finally:
            edge.metrics.subscribers_inflight.dec()
            tasks.cancel_scope.cancel()
            reason = connection.ended or "left"
            edge.metrics.streams_ended.labels(reason).inc()
            duration_ms = int((time.monotonic() - begun_at) * 1000)
            _log.info("subscription.ended", path=scope["path"], reason=reason, duration_ms=duration_ms, **told)


class _Life:
    """Of a stream, beyond its endpoint: `send` is the server's own, without what middleware put around it."""

    __slots__ = ("rest", "send")

    def __init__(self, send: Send) -> None:
        self.send = send
        self.rest: AsyncGenerator[None] | None = None


_LIFE = "threadcast.life"
"""ASGI extension: where an endpoint lays the stream that it began."""


async def lingering(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """One request to `app`, and then the life of the stream that it began, if it did.

    Routing, middleware and the endpoint are a dozen coroutines deep. They are over when a stream has begun, so an idle
    reader keeps none of them (`bench.memory`).
    """
    life = _Life(send)
    scope.setdefault("extensions", {})[_LIFE] = life
    try:
        await app(scope, receive, send)
        if life.rest is not None:
            async for _ in life.rest:
                pass
    finally:
        if life.rest is not None:
            await life.rest.aclose()


async def begin(scope: Scope, stream: AsyncGenerator[None]) -> None:
    """Run `stream` to its `yield`, when its answer has begun; the rest of it, until the reader has left, may be
    outlived by the endpoint, whose last word this is."""
    await anext(stream)
    life = scope.pop("extensions", {}).get(_LIFE)
    if life is None:  # under another server than ours
        async for _ in stream:
            pass
    else:
        life.rest = stream


async def goodbye(receive: Receive) -> None:
    """Wait until the reader has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _cannot_abort() -> None:
    """Under another server than ours the connection is left to it."""


def _no_outlet() -> Put:
    return put_nothing
