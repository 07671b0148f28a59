"""Requests and streams of HTTP over bare sockets: cheap enough for hundreds of readers beside the servers they read.

The module reads only the part of HTTP/1.1 that Threadcast's servers use: bodies with a length or in chunks. Any other
answer, and every broken or silent connection, raises `Broken`: the caller tries another process, which is always safe.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Answer", "Broken", "Lines", "stream"]

CONNECT_SECONDS = 2.0
HEAD_MAX_BYTES = 64 * 1024


class Broken(Exception):
    """The caller received no whole answer: the connection could not be made, broke, or fell silent."""


class Answer(NamedTuple):
    status: int
    body: bytes

    @property
    def json(self) -> JsonObject:
        try:
            value = msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return {}
        return value if isinstance(value, dict) else {}


class Lines:
    """Makes requests over kept connections, as browsers do. If a kept connection has broken, the next request on it
    raises `Broken`, although the request may not have been sent."""

    def __init__(self) -> None:
        self._idle: dict[int, list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = {}

    async def request(self, port: int, method: str, path: str, body: bytes = b"", *, seconds: float = 10.0) -> Answer:
        """Make one request and return its answer.

        Raises:
            Broken: no whole answer came within `seconds`; the server may have acted on the request.
        """
        line: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        is_whole = False
        try:
            async with asyncio.timeout(seconds):
                line = self._take(port) or await _connect(port)
                more = f"Content-Type: application/json\r\nContent-Length: {len(body)}"
                line[1].write(_head(method, path, port, more) + body)
                answer, is_kept = await _whole_answer(line[0])
                is_whole = is_kept
                return answer
        except (OSError, RuntimeError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as wrong:
            raise Broken(f"{method} {path}: {wrong!r}") from None
        finally:
            if line is not None and is_whole:
                self._idle.setdefault(port, []).append(line)
            elif line is not None:
                line[1].transport.abort()

    def _take(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        idle = self._idle.get(port, [])
        while idle:
            line = idle.pop()
            if not line[1].transport.is_closing() and not line[0].at_eof():
                return line
            line[1].transport.abort()
        return None


async def _whole_answer(reader: asyncio.StreamReader) -> tuple[Answer, bool]:
    """Return an answer, and whether the connection can be reused."""
    status, headers = await _answer_head(reader)
    is_kept = headers.get("connection", "") != "close"
    if "chunked" in headers.get("transfer-encoding", ""):
        return Answer(status, b"".join([chunk async for chunk in _chunks(reader)])), is_kept
    return Answer(status, await reader.readexactly(int(headers.get("content-length", "0")))), is_kept


@contextlib.asynccontextmanager
async def stream(
    port: int, path: str, last_event_id: str = "", *, silence_seconds: float, receive_buffer_bytes: int = 0
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yield the bytes of an event stream. With a small `receive_buffer_bytes` the server soon notices a slow reader.

    Raises:
        Broken: the stream did not open with 200, broke, ended in the middle of a chunk, or was silent for
            `silence_seconds`.
    """
    more = f"Accept: text/event-stream\r\nLast-Event-ID: {last_event_id}" if last_event_id else "Accept: */*"
    try:
        async with _connection(port, receive_buffer_bytes) as (reader, writer):
            async with asyncio.timeout(silence_seconds):
                writer.write(_head("GET", path, port, more))
                status, _ = await _answer_head(reader)
            if status != 200:
                raise Broken(f"GET {path} was answered {status}")
            yield _chunks(reader, silence_seconds)
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as wrong:
        raise Broken(f"GET {path}: {wrong!r}") from None


def _head(method: str, path: str, port: int, more: str) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{more}\r\n\r\n".encode()


async def _connect(port: int, receive_buffer_bytes: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    if receive_buffer_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
            return await asyncio.open_connection(sock=sock, limit=HEAD_MAX_BYTES)
    except BaseException:
        sock.close()
        raise


@contextlib.asynccontextmanager
async def _connection(
    port: int, receive_buffer_bytes: int = 0
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await _connect(port, receive_buffer_bytes)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _answer_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in head[1:] if line)
    return int(head[0].split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}


async def _chunks(reader: asyncio.StreamReader, silence_seconds: float | None = None) -> AsyncIterator[bytes]:
    """Yield the bodies of the chunks, until the last one. Raises TimeoutError, IncompleteReadError."""
    while True:
        async with asyncio.timeout(silence_seconds):
            size = int(await reader.readuntil(b"\r\n"), 16)
            chunk = (await reader.readexactly(size + 2))[:-2]
        if not size:
            return
        yield chunk
