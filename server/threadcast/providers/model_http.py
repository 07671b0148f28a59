"""An HTTP/1.1 transport for httpx2's client that handles answers in many small chunks cheaply.

A model sends some 50 chunks a second, each in its own packet. On each packet, httpx2's network layer spends four times
the CPU of a bare read (`docs/decisions/0023`). Here bytes go from asyncio's transport through httptools, the parser
that uvicorn uses, directly to the body. Within an answer, the packets of one pace collect in the kernel and are read
together, since the writer would not append them sooner. httpx2 still makes requests, decodes, and defines errors and
timeouts; every error of this transport is an httpx2 error. Behind a proxy httpx2's own transport is used
(`model_transport`).
"""

import asyncio
import socket
import ssl
from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import TypeAlias
from urllib.request import getproxies

import httpx2

from threadcast.base.append_pace import PACE, Ticks
from threadcast.providers.model_connection import ModelConnection

__all__ = ["ModelTransport", "first_to_answer", "model_transport", "plain_pieces"]

IDLE_SECONDS = 5.0
"""Seconds for which an idle connection is reused: httpx2's default, below the timeouts of servers."""

IDLE_MAX_COUNT = 100
"""Maximum idle connections to all servers, as in the SDKs; the oldest connection is closed first."""

ADDRESS_SECONDS = 2.0
"""Seconds to connect to one of several addresses: far above a round trip, and short enough that an unreachable IPv6
address does not take the whole timeout."""

_PIECES = "threadcast.pieces"
"""The key under which `plain_pieces` finds the body in the extensions of a response."""

Origin: TypeAlias = tuple[str, str, int]
_Found: TypeAlias = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]


def model_transport(base_url: str) -> "ModelTransport | None":
    """Return the transport for this server, or None (httpx2's own transport) when the environment names a proxy.
    Reading the certificates may take 0.1 s."""
    if any(scheme in getproxies() for scheme in ("http", "https", "all")):
        return None
    return ModelTransport(httpx2.create_ssl_context() if base_url.startswith("https:") else None)


def plain_pieces(response: httpx2.Response) -> AsyncIterator[bytes] | None:
    """Return the pieces of this body as they are read from the connection; None if the body is compressed or another
    transport reads it. httpx2 and the SDK put five generators around the same pieces, which cost more than the read
    itself. Closing the response closes the body as always."""
    if response.headers.get("content-encoding", "identity") != "identity":
        return None
    pieces: _Body | None = response.extensions.get(_PIECES)
    return pieces


class ModelTransport(httpx2.AsyncBaseTransport):
    """Keeps connections for later calls. `tls` is the context for https; without it an https call is refused."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._answers_count = 0
        self._ticks = Ticks()
        self._idle: defaultdict[Origin, list[ModelConnection]] = defaultdict(list)
        if tls is not None:
            tls.set_alpn_protocols(["http/1.1"])

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises httpx2.TransportError."""
        timeouts = request.extensions.get("timeout", {})
        origin = _origin(request.url)
        assert isinstance(request.stream, AsyncIterable)
        asked = (_head_bytes(request), *[piece async for piece in request.stream])
        connection = self._take_idle(origin) or await self._connect(origin, timeouts.get("connect"))
        try:
            head = await connection.ask(asked, timeouts.get("read"))
        except BaseException:
            connection.abort()
            raise
        self._answers_count += 1
        body = _Body(self, origin, connection, timeouts.get("read"))
        extensions = {"http_version": b"HTTP/1.1", "reason_phrase": head.reason, _PIECES: body}
        return httpx2.Response(head.status, headers=head.headers, stream=body, extensions=extensions)

    async def aclose(self) -> None:
        for waiting in self._idle.values():
            for connection in waiting:
                connection.abort()
        self._idle.clear()

    def give_back(self, origin: Origin, connection: ModelConnection) -> None:
        """Return a connection after an answer; it is kept if the answer was complete and the server allows reuse."""
        self._answers_count -= 1
        if not connection.is_reusable:
            connection.abort()
            return
        connection.rest()
        self._idle[origin].append(connection)
        everybody = [(each.idle_since, idle_origin, each) for idle_origin, kept in self._idle.items() for each in kept]
        if len(everybody) > IDLE_MAX_COUNT:
            _, idle_origin, oldest = min(everybody, key=lambda one: one[0])
            self._idle[idle_origin].remove(oldest)
            oldest.abort()

    def _pace_seconds(self) -> float:
        return PACE.seconds(self._answers_count)

    def _take_idle(self, origin: Origin) -> ModelConnection | None:
        while self._idle[origin]:
            connection = self._idle[origin].pop()
            if connection.is_reusable and connection.idle_seconds < IDLE_SECONDS and not connection.has_heard():
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: Origin, timeout_seconds: float | None) -> ModelConnection:
        scheme, host, port = origin
        if scheme == "https" and self._tls is None:
            raise httpx2.UnsupportedProtocol("this transport was made without TLS")
        loop = asyncio.get_running_loop()
        is_tls = scheme == "https"
        try:
            async with asyncio.timeout(timeout_seconds):
                _, connection = await loop.create_connection(
                    lambda: ModelConnection(self._pace_seconds, self._ticks),
                    sock=await first_to_answer(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)),
                    ssl=self._tls if is_tls else None,
                    server_hostname=host if is_tls else None,
                )
        except TimeoutError as wrong:
            raise httpx2.ConnectTimeout(f"no connection to {host}:{port} within {timeout_seconds} s") from wrong
        except (OSError, UnicodeError) as wrong:  # errors of name resolution, sockets and TLS
            raise httpx2.ConnectError(str(wrong)) from wrong
        return connection


class _Body(httpx2.AsyncByteStream):
    """The body of one answer; closing it early closes the connection, which stops the model."""

    def __init__(
        self, transport: ModelTransport, origin: Origin, connection: ModelConnection, timeout_seconds: float | None
    ) -> None:
        self._transport = transport
        self._origin = origin
        self._connection: ModelConnection | None = connection
        self._timeout_seconds = timeout_seconds

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._connection.read(self._timeout_seconds) if self._connection is not None else b""
        if not piece:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.give_back(self._origin, connection)


async def first_to_answer(addresses: Sequence[_Found]) -> socket.socket:
    """Return a socket connected to the first address that answers. Each address but the last has its own timeout.
    `addresses` is the result of getaddrinfo. Raises OSError."""
    loop = asyncio.get_running_loop()
    for left, (family, kind, protocol, _, address) in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
        connecting = socket.socket(family, kind, protocol)
        connecting.setblocking(False)
        try:
            async with asyncio.timeout(ADDRESS_SECONDS if left else None):
                await loop.sock_connect(connecting, address)
        except BaseException as wrong:
            connecting.close()
            if not (left and isinstance(wrong, OSError)):
                raise
        else:
            return connecting
    raise OSError("the name has no address")


def _origin(url: httpx2.URL) -> Origin:
    if url.scheme not in ("http", "https"):
        raise httpx2.UnsupportedProtocol(f"{url.scheme}:// is not supported")
    return url.scheme, url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80)


def _head_bytes(request: httpx2.Request) -> bytes:
    """Return the request's head as bytes. Raises LocalProtocolError for line breaks in a header, and for bodies of
    unknown length."""
    if request.method == "HEAD":
        raise httpx2.LocalProtocolError("HEAD is not supported: its answer has no body, whatever its head says")
    lines = [b"%s %s HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    for name, value in request.headers.raw:
        if name.lower() == b"transfer-encoding":
            raise httpx2.LocalProtocolError("bodies of unknown length are not supported")
        lines.append(name + b": " + value)
    if any(b"\r" in line or b"\n" in line or b"\0" in line for line in lines):
        raise httpx2.LocalProtocolError("a header contains a line break")
    return b"\r\n".join(lines) + b"\r\n\r\n"
