"""HTTP/1.1 to servers of models, cheap where answers come in many small pieces: a transport for httpx2's client.

A model sends some 50 chunks a second, each a packet of its own. httpx2's own network layer spends four times the CPU of
a bare read on each (`docs/decisions/0023`). Here bytes go from asyncio's transport through httptools, the parser that
uvicorn uses, straight to the body; and once an answer is under way, what comes within a pace is left in the kernel and
read at once: the writer would not append it sooner. httpx2 stays the client: requests, decoding, errors and timeouts
are its own. It knows no model, and no proxy: where there is one, httpx2's own transport speaks (`model_transport`). The
rule: whatever goes wrong is an error of httpx2's.
"""

import asyncio
import socket
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias
from urllib.request import getproxies

import httpx2

from server.pace import Ticks, pace_seconds
from server.providers.model_connection import Connection

__all__ = ["ModelTransport", "first_to_answer", "model_transport"]

IDLE_SECONDS = 5.0
"""An idle connection is used again within so long: httpx2's own default, below what servers wait."""

IDLE_MAX_COUNT = 100
"""Idle connections that are kept, of all servers; the oldest goes first. As the SDKs keep."""

ADDRESS_SECONDS = 2.0
"""For one of several: an IPv6 address that leads nowhere must not cost the whole timeout. Far above a round trip."""

Origin: TypeAlias = tuple[str, str, int]
_Found: TypeAlias = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]


def model_transport(base_url: str) -> "ModelTransport | None":
    """For a client that speaks to this server; None, which means httpx2's own, where the environment names a proxy.
    May read certificates for 0.1 s."""
    if any(scheme in getproxies() for scheme in ("http", "https", "all")):
        return None
    return ModelTransport(httpx2.create_ssl_context() if base_url.startswith("https:") else None)


class ModelTransport(httpx2.AsyncBaseTransport):
    """Connections are kept for the next call. `tls` is for https; without one such a call is refused."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._answers_count = 0
        self._ticks = Ticks()
        self._idle: defaultdict[Origin, list[Connection]] = defaultdict(list)
        if tls is not None:
            tls.set_alpn_protocols(["http/1.1"])

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises httpx2.TransportError."""
        timeouts = request.extensions.get("timeout", {})
        origin = _origin(request.url)
        asked = _head_bytes(request) + await request.aread()
        connection = self._take_idle(origin) or await self._connect(origin, timeouts.get("connect"))
        try:
            head = await connection.ask(asked, timeouts.get("read"))
        except BaseException:
            connection.abort()
            raise
        self._answers_count += 1
        body = _Body(self, origin, connection, timeouts.get("read"))
        extensions = {"http_version": b"HTTP/1.1", "reason_phrase": head.reason}
        return httpx2.Response(head.status, headers=head.headers, stream=body, extensions=extensions)

    async def aclose(self) -> None:
        for waiting in self._idle.values():
            for connection in waiting:
                connection.abort()
        self._idle.clear()

    def give_back(self, origin: Origin, connection: Connection) -> None:
        """After an answer: kept when it came whole and the server lets us."""
        self._answers_count -= 1
        if not connection.is_reusable:
            connection.abort()
            return
        connection.rest()
        self._idle[origin].append(connection)
        everybody = [(each.idle_since, place, each) for place, kept in self._idle.items() for each in kept]
        if len(everybody) > IDLE_MAX_COUNT:
            _, place, oldest = min(everybody, key=lambda one: one[0])
            self._idle[place].remove(oldest)
            oldest.abort()

    def _pace_seconds(self) -> float:
        return pace_seconds(self._answers_count)

    def _take_idle(self, origin: Origin) -> Connection | None:
        while self._idle[origin]:
            connection = self._idle[origin].pop()
            if connection.is_reusable and connection.idle_seconds < IDLE_SECONDS and not connection.has_heard():
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: Origin, timeout_seconds: float | None) -> Connection:
        scheme, host, port = origin
        if scheme == "https" and self._tls is None:
            raise httpx2.UnsupportedProtocol("this transport was made without TLS")
        loop = asyncio.get_running_loop()
        is_tls = scheme == "https"
        try:
            async with asyncio.timeout(timeout_seconds):
                _, connection = await loop.create_connection(
                    lambda: Connection(self._pace_seconds, self._ticks),
                    sock=await first_to_answer(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)),
                    ssl=self._tls if is_tls else None,
                    server_hostname=host if is_tls else None,
                )
        except TimeoutError as wrong:
            raise httpx2.ConnectTimeout(f"no connection to {host}:{port} within {timeout_seconds} s") from wrong
        except (OSError, UnicodeError) as wrong:  # of names, sockets and TLS
            raise httpx2.ConnectError(str(wrong)) from wrong
        return connection


class _Body(httpx2.AsyncByteStream):
    """Of one answer; closing it early closes the connection, which stops the model."""

    def __init__(
        self, transport: ModelTransport, origin: Origin, connection: Connection, timeout_seconds: float | None
    ) -> None:
        self._transport = transport
        self._origin = origin
        self._connection: Connection | None = connection
        self._timeout_seconds = timeout_seconds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._connection is not None and (piece := await self._connection.read(self._timeout_seconds)):
            yield piece

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.give_back(self._origin, connection)


async def first_to_answer(addresses: Sequence[_Found]) -> socket.socket:
    """A socket connected to the first address that answers; each has its own time while others remain. `addresses` are
    what getaddrinfo found. Raises OSError."""
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
        raise httpx2.UnsupportedProtocol(f"{url.scheme}:// is not spoken here")
    return url.scheme, url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80)


def _head_bytes(request: httpx2.Request) -> bytes:
    """Raises LocalProtocolError for what would not stay one line of a head, and for bodies of unknown length."""
    if request.method == "HEAD":
        raise httpx2.LocalProtocolError("the answer to HEAD has no body where its head promises one")
    lines = [b"%s %s HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    for name, value in request.headers.raw:
        if name.lower() == b"transfer-encoding":
            raise httpx2.LocalProtocolError("a body of unknown length is not sent here")
        lines.append(name + b": " + value)
    if any(b"\r" in line or b"\n" in line or b"\0" in line for line in lines):
        raise httpx2.LocalProtocolError("a header holds a line break")
    return b"\r\n".join(lines) + b"\r\n\r\n"
