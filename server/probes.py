"""`/livez`, `/readyz` and `/metrics` where no web application is: in a worker, in a web process that still starts, and
on the port that each of several web processes has for itself.

A bare ASGI application without routes of its own framework. `Door` stands before the web application from the moment
the port is open: until there is an application behind it, probes are answered here and everything else is told to
come back. The rule: the answers are those of `api/caps.py`, so whoever probes need not know what kind of process it is.
"""

import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractContextManager, asynccontextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from protocol.codec import encode
from protocol.messages import JsonObject
from server.api.opening import lingering
from server.http import serving
from server.readiness import Readiness
from server.telemetry import METRICS_CONTENT_TYPE, Metrics

__all__ = ["Door", "Probes", "probed"]

LIVE: JsonObject = {"status": "ok"}

_STARTING: JsonObject = {"detail": "the server is starting; try again", "code": "unavailable", "status": "unavailable"}


class Probes:
    """`metrics` None: they are not told here."""

    def __init__(self, readiness: Readiness, metrics: Metrics | None = None) -> None:
        self._readiness = readiness
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; what is not asked with GET or HEAD, or is no probe, is 503 or 404 as `_elsewhere` says."""
        path = scope["path"] if scope["method"] in ("GET", "HEAD") else ""
        if path == "/livez":
            await _answer(send, 200, LIVE)
        elif path == "/readyz":
            await _answer(send, *await self._readiness.look())
        elif path == "/metrics" and self._metrics is not None:
            await _send(send, 200, self._metrics.render(), METRICS_CONTENT_TYPE)
        elif self._metrics is not None:
            await _answer(
                send, 404, {"detail": "here are /livez, /readyz and /metrics, nothing else", "code": "not_found"}
            )
        else:
            await _answer(send, 503, {**_STARTING, "error": _STARTING["detail"]}, (b"retry-after", b"1"))


class Door:
    """The web application once there is one; probes until then."""

    def __init__(self, probes: Probes) -> None:
        self._app: ASGIApp = probes

    def open(self, app: ASGIApp) -> None:
        """From now on requests go to `app`."""
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return lingering(self._app, scope, receive, send)


@asynccontextmanager
async def probed(
    listening: AbstractContextManager[socket.socket] | None, readiness: Readiness, metrics: Metrics
) -> AsyncIterator[None]:
    """Metrics and health are told there; the first to be opened and the last to be closed. None: nowhere."""
    if listening is None:
        yield
        return
    with listening as listener:
        async with serving(listener, Probes(readiness, metrics)):
            yield


async def _answer(send: Send, status: int, body: JsonObject, *headers: tuple[bytes, bytes]) -> None:
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
