"""HTTP on a socket of our own: serving one ASGI application, ending when we say so. uvicorn speaks it.

uvicorn's signal handling is left out, because streams must be told to come back before it waits for them to end. Used
by `app.py` for the web half and by `probes.py` for what has a port of its own; it knows no route. The rule: closing is
two steps, `close_soon` and `ended`, and between them whoever serves streams ends them.
"""

import resource
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial

import anyio
import structlog
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from server.api.opening import ABORT, OUTLET
from server.forks import close_in_children
from server.outlet import outlet

__all__ = ["CLOSE_SECONDS", "HttpServer", "allow_open_files", "serving"]

_log = structlog.get_logger()

OTHER_FILES = 1_000
"""Besides open streams: connections of commands, of models and tools, to the store, and processes' pipes."""

CLOSE_SECONDS = 3
"""How long uvicorn waits for the last answers."""

KEEP_ALIVE_SECONDS = 75
"""How long a connection without a request stays open. Longer than clients and proxies keep one that they may use again
(httpx 5 s, the `keepalive_timeout` of nginx's upstreams 60 s): who closes first decides whether a request can meet a
connection that is just being closed, and a POST that was lost so is not sent again by itself."""


def allow_open_files(streams_max: int) -> int:
    """Raise this process's soft bound on open files as far as its streams need and the hard one allows; the new one.
    Many systems begin with 1,024, which a thousand readers use up long before `limits.streams_max`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = streams_max + OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # the kernel has a bound of its own, below the hard one (macOS)
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft != resource.RLIM_INFINITY and soft < streams_max + OTHER_FILES:
        _log.debug("streams.bounded", open_files=soft, streams_max=streams_max)  # most have far fewer readers
    return soft


FIRST_REQUEST_SECONDS = 0.25
"""From accepting a connection to its first request, at the end of a process. Programs ask within a round trip; a
browser that connects ahead asks later, and tries again."""


class HttpServer(uvicorn.Server):
    """uvicorn without its hands on the process's signals. `ended` is set when the last connection is closed."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                _Lending(app),
                interface="asgi3",  # which uvicorn guesses from coroutine functions
                http="httptools",
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                log_level="warning",
                server_header=False,
                date_header=False,
                proxy_headers=False,  # who is behind a proxy, nobody here asks; and each stream would keep a layer
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=CLOSE_SECONDS,
            )
        )
        self.ended = anyio.Event()
        self._has_begun = False

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._has_begun = True
        try:
            await super().serve(sockets)
        finally:
            self.ended.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's, but who has connected and not asked yet is heard first: the connection was taken from whoever will
        listen after us, and closing it would be an answer to nobody's liking."""
        for listening in self.servers:
            listening.close()
        until = time.monotonic() + FIRST_REQUEST_SECONDS
        await anyio.sleep(0.01)  # those that the loop has just accepted become connections
        while time.monotonic() < until and any(  # noqa: ASYNC110 - a connection tells nobody that it has asked
            _has_not_asked(each) for each in self.server_state.connections
        ):
            await anyio.sleep(0.01)
        await super().shutdown(sockets)

    def descriptors(self) -> list[int]:
        """Return the descriptors of the open connections."""
        connections = [each for each in self.server_state.connections if isinstance(each, HttpToolsProtocol)]
        return [each.transport.get_extra_info("socket").fileno() for each in connections]

    def close_soon(self) -> None:
        """Accept nobody any more, close idle connections, and the others after the answer that they wait for."""
        self.should_exit = True
        if not self._has_begun:
            self.ended.set()

    async def until_ended(self) -> None:
        """For at most a second more than the last answers may take."""
        with anyio.move_on_after(CLOSE_SECONDS + 1):
            await self.ended.wait()


@asynccontextmanager
async def serving(listener: socket.socket, app: ASGIApp, begin: anyio.Event | None = None) -> AsyncIterator[HttpServer]:
    """Requests are answered by `app` for as long as it is entered; then the rest finishes. Until `begin` is set, if it
    is given, connections wait in the socket, for us or for whoever else has it."""
    server = HttpServer(app)
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


def _has_not_asked(connection: object) -> bool:
    return isinstance(connection, HttpToolsProtocol) and connection.cycle is None


class _Lending:
    """Lends requests the way to drop their connection, since closing it politely would wait for a reader who never
    reads, and the short way to their socket.

    `send` is a method of uvicorn's request, which knows its transport; under any other server nothing is lent.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        request = getattr(send, "__self__", None)
        if isinstance(request, RequestResponseCycle):
            lent = {ABORT: request.transport.abort, OUTLET: partial(outlet, request)}
            scope.setdefault("extensions", {}).update(lent)
            # uvicorn's protocol has another list of the same headers until the next request comes, which it reads no
            # more; an endpoint that stays can let go of those in `scope` then, and of two kilobytes of a browser's.
            heard = scope["headers"]
            scope["headers"] = heard.copy()
            heard.clear()
        return self._app(scope, receive, send)  # not awaited here: a layer less that each stream would keep
