"""Serves `/livez`, `/readyz` and `/metrics` without the web application: in a worker, in a starting web process, and on
the extra port of each of several web processes.

`Probes` is a plain ASGI application. `StartupGate` receives requests from the moment the port is open: until the web
application is ready, it answers probes and asks other clients to retry. The answers equal those of `api/caps.py`, so
probes need not distinguish kinds of processes.
"""

import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractContextManager, asynccontextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from threadcast.base.telemetry import METRICS_CONTENT_TYPE, Metrics
from threadcast.http.admission import Connections
from threadcast.http.extensions import lingering
from threadcast.http.readiness import Readiness
from threadcast.http.server import serving
from threadcast.settings.limits import Limits
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.http import Failure
from threadcast_protocol.wire.server_info import Health

__all__ = ["Probes", "StartupGate", "probed"]

LIVE = Health("ok")

_STARTING = "the server is starting; try again"


class Probes:
    """Answers probes. If `metrics` is None, `/metrics` is not served."""

    def __init__(self, readiness: Readiness, metrics: Metrics | None = None) -> None:
        self._readiness = readiness
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; other methods and paths get 404, or 503 in a web process that is starting."""
        path = scope["path"] if scope["method"] in ("GET", "HEAD") else ""
        if path == "/livez":
            await _answer(send, 200, LIVE)
        elif path == "/readyz":
            await _answer(send, *await self._readiness.look())
        elif path == "/metrics" and self._metrics is not None:
            await _send(send, 200, self._metrics.render(), METRICS_CONTENT_TYPE)
        elif self._metrics is not None:
            await _answer(send, 404, Failure("here are /livez, /readyz and /metrics, nothing else", "not_found"))
        else:
            starting = Failure(_STARTING, "unavailable", status="unavailable", error=_STARTING)
            await _answer(send, 503, starting, (b"retry-after", b"1"))


class StartupGate:
    """Passes requests to the probes until the web application is set, and from then on to the web application."""

    def __init__(self, probes: Probes) -> None:
        self._app: ASGIApp = probes

    def open(self, app: ASGIApp) -> None:
        """Send all further requests to `app`."""
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return lingering(self._app, scope, receive, send)


PROBES_CONNECTIONS_MAX = 100
"""Maximum number of open connections to the port of metrics and health, which a few collectors and balancers use."""


@asynccontextmanager
async def probed(
    listening: AbstractContextManager[socket.socket] | None, readiness: Readiness, metrics: Metrics, limits: Limits
) -> AsyncIterator[None]:
    """Serve metrics and health on a port during the block. If `listening` is None, do nothing."""
    if listening is None:
        yield
        return
    with listening as listener:
        connections = Connections(limits, PROBES_CONNECTIONS_MAX, metrics)
        async with serving(listener, Probes(readiness, metrics), connections):
            yield


async def _answer(send: Send, status: int, body: object, *headers: tuple[bytes, bytes]) -> None:
    await _send(send, status, encode(body), "application/json", *headers)


async def _send(send: Send, status: int, body: bytes, content_type: str, *headers: tuple[bytes, bytes]) -> None:
    told = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body, "more_body": False})
