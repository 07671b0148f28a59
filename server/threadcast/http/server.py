"""Serves one ASGI application with uvicorn on a given socket, and ends the server on request.

uvicorn's signal handling is disabled, because streams must be told to reconnect before uvicorn waits for their end. The
web process uses this module for its application, and `probes.py` uses it for the extra port. Closing takes two steps,
`close_soon` and `until_ended`; in between, the web process ends its streams.
"""

import asyncio
import resource
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import cast

import anyio
import structlog
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from threadcast.base.forks import close_in_children
from threadcast.http.admission import Connections
from threadcast.http.connections import BoundedConnection
from threadcast.http.direct_send import begin_direct
from threadcast.http.extensions import ABORT, BEGIN_DIRECT, HAS_LEFT
from threadcast.http.uvicorn_inside import HTTP, MISFIT, HttpToolsProtocol, RequestResponseCycle
from threadcast.http.wide_buffers import WideBuffers

__all__ = ["CLOSE_SECONDS", "HttpServer", "allow_open_files", "serving"]

_log = structlog.get_logger()

OTHER_FILES = 1_000
"""Number of file descriptors that are not used for connections of clients: connections to models, tools and the store,
and pipes of processes need them. If the process may open fewer than 4,000 files, a quarter of that limit is kept back
instead."""

CLOSE_SECONDS = 3
"""Seconds that uvicorn waits for the last answers."""

KEEP_ALIVE_SECONDS = 75
"""Seconds that a connection without a request stays open: longer than clients and proxies keep idle connections (httpx
5 s, the `keepalive_timeout` of nginx's upstreams 60 s). If the server closed first, a request could arrive on a closing
connection, and a lost POST is not repeated automatically."""


def allow_open_files(connections_max: int) -> int:
    """Raise this process's soft limit of open files to the number that `connections_max` connections need, within the
    hard limit.

    Returns the number of connections that may be open at once; it never exceeds `connections_max`. Descriptors are kept
    back for the store, models and tools: without them a flood of connections would cut the server off from its store.
    Many systems begin with a limit of 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections_max + OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # the kernel's own limit may be below the hard limit (macOS)
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft == resource.RLIM_INFINITY:
        return connections_max
    allowed = min(connections_max, soft - min(OTHER_FILES, soft // 4))
    if allowed < connections_max:
        _log.debug("connections.bounded", open_files=soft, connections_max=allowed)  # most servers have far fewer
    return allowed


ACCEPTED_AT_ONCE = 8
"""Number of connections that are accepted in one turn of the event loop. libuv, on which uvloop is built, accepts one
connection in each turn for each descriptor of a listening socket, so the server listens with copies of the descriptor.
Otherwise a probe behind 200 connections would wait for 200 turns, each with the work of a request (decision 0039)."""

FIRST_REQUEST_SECONDS = 1.0
"""A process that shuts down waits for the first request of each connection that is younger than this number of seconds.
Programs send this request within a round trip, unless their machine is busy. A browser that connects in advance sends
it later, and then retries."""


class HttpServer(uvicorn.Server):
    """A uvicorn server without signal handling. `ended` is set when the last connection is closed."""

    def __init__(self, app: ASGIApp, connections: Connections) -> None:
        protocol = partial(
            BoundedConnection, connections
        )  # a class with its first argument, which is all uvicorn needs
        super().__init__(
            uvicorn.Config(
                _Lending(app, connections.wide_buffers),
                interface="asgi3",  # which uvicorn guesses from coroutine functions
                http=HTTP if MISFIT else cast("type[asyncio.Protocol]", protocol),
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                log_level="warning",
                server_header=False,
                date_header=False,
                proxy_headers=False,  # client addresses are not needed, and the layer would take memory in each stream
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=CLOSE_SECONDS,
            )
        )
        self.ended = anyio.Event()
        self._has_begun = False
        self._copies: list[socket.socket] = []
        """Further descriptors of the listening sockets (`ACCEPTED_AT_ONCE`)."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._has_begun = True
        with ExitStack() as stack:
            for listener in tuple(sockets or ()):
                self._copies += [stack.enter_context(listener.dup()) for _ in range(ACCEPTED_AT_ONCE - 1)]
            try:
                await super().serve([*(sockets or ()), *self._copies])
            finally:
                self.ended.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does, but first wait for requests on accepted connections: closing such a connection
        would fail a client that another process could have served."""
        if MISFIT:
            await super().shutdown(sockets)
            return
        for listening in self.servers:
            listening.close()
        await anyio.sleep(0.01)  # lets just accepted sockets become connections
        while any(  # noqa: ASYNC110 - a connection has no event for its first request
            _may_ask_soon(each) for each in self.server_state.connections
        ):
            await anyio.sleep(0.01)
        await super().shutdown(sockets)

    def descriptors(self) -> list[int]:
        """Return the descriptors of the open connections, and the copied descriptors of the listening sockets."""
        connections = [each for each in self.server_state.connections if isinstance(each, HttpToolsProtocol)]
        copies = [each.fileno() for each in self._copies if each.fileno() >= 0]
        return [*copies, *(each.transport.get_extra_info("socket").fileno() for each in connections)]

    def close_soon(self) -> None:
        """Stop accepting, close idle connections, and close the others after their present answer."""
        self.should_exit = True
        if not self._has_begun:
            self.ended.set()

    async def until_ended(self) -> None:
        """Wait at most `CLOSE_SECONDS` plus one second until the last connection is closed."""
        with anyio.move_on_after(CLOSE_SECONDS + 1):
            await self.ended.wait()


@asynccontextmanager
async def serving(
    listener: socket.socket, app: ASGIApp, connections: Connections, begin: anyio.Event | None = None
) -> AsyncIterator[HttpServer]:
    """Serve `app` during the block. At its end the server stops accepting, and finishes the answers that it has begun.
    If `begin` is given, this process accepts connections only after `begin` is set. Until then, connections wait in the
    socket for this process, or for another process that shares the socket."""
    server = HttpServer(app, connections)
    forget = close_in_children(server.descriptors)

    async def serve() -> None:
        if begin is not None:
            await begin.wait()
        await server.serve([listener])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        try:
            yield server
        finally:
            server.close_soon()
            with anyio.CancelScope(shield=True):
                await server.until_ended()
            forget()
            tasks.cancel_scope.cancel()


def _may_ask_soon(connection: object) -> bool:
    """Return whether the connection is young and no request has arrived on it."""
    return (
        isinstance(connection, BoundedConnection)
        and time.monotonic() - connection.began_at < FIRST_REQUEST_SECONDS
        and connection.cycle is None
    )


class _Lending:
    """Adds three functions to each request: dropping its connection (a clean close would wait for a reader that never
    reads), beginning an answer that is written directly to its socket, and asking whether the client has disconnected.

    The functions need the transport, which uvicorn's request has; `send` is a method of that request. With other
    servers the functions are not added.
    """

    def __init__(self, app: ASGIApp, wide_buffers: WideBuffers) -> None:
        self._app = app
        self._wide_buffers = wide_buffers

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        request = getattr(send, "__self__", None)
        if isinstance(request, RequestResponseCycle):
            lent = {
                ABORT: request.transport.abort,
                BEGIN_DIRECT: partial(begin_direct, request, self._wide_buffers),
                HAS_LEFT: request.transport.is_closing,
            }
            scope.setdefault("extensions", {}).update(lent)
            # uvicorn's protocol keeps a second list of the same headers, which it no longer reads. Without that list, a
            # long stream can free the headers in `scope`, two kilobytes for a browser.
            heard = scope["headers"]
            scope["headers"] = heard.copy()
            heard.clear()
        return self._app(scope, receive, send)  # returned, not awaited: this saves a coroutine for each stream
