"""An HTTP proxy on loopback, in front of a real server, that breaks one rule in the server's answers.

The proxy reads requests and answers as HTTP/1.1, lets a `Mutation` change them, and passes them on. Answers other than
event streams are read whole. An event stream is passed on in units: a block up to its blank line, or a comment or
`retry` line by itself, as soon as it is complete. Data that a mutation does not change is passed on byte by byte.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qs, urlsplit

__all__ = ["Answer", "Mutation", "Proxy", "Request", "UnitChange", "proxy_to"]

HEAD_MAX_BYTES = 262_144
READ_BYTES = 65_536
CLOSE_SECONDS = 5.0
HOP_HEADERS = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


@dataclass
class Request:
    """A request. `target` is path and query; header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.target).query, keep_blank_values=True)


@dataclass
class Answer:
    """An answer. `body` is None for an event stream, of which only the head is known."""

    status: int
    headers: dict[str, str]
    body: bytes | None

    def copy(self) -> "Answer":
        return replace(self, headers=dict(self.headers))


UnitChange = Callable[[bytes], Iterable[bytes]]
"""Maps a unit of a stream to the units that are passed on instead. Each stream has its own function, which may keep
state between units."""


@dataclass(frozen=True)
class Mutation:
    """One error of a server, described by `sentence`. `hints` names the transcripts that are played first.

    Each of the three changes is optional. `request` and `answer` change their last argument in place. `unit` returns
    the change of a stream, or None.
    """

    sentence: str
    hints: tuple[str, ...]
    request: Callable[[Request], object] | None = None
    answer: Callable[[Request, Answer], None] | None = None
    unit: Callable[[Request], UnitChange | None] | None = None
    never_ends: bool = False
    """Whether the proxy keeps a stream open that the server has ended."""


@dataclass
class Proxy:
    """The proxy. `changes_count` is the number of changes that the mutation has made; if it is 0, the result of a
    transcript proves nothing."""

    port: int
    mutation: Mutation | None
    url: str = ""
    changes_count: int = 0
    _open: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client connection, whose requests come one after the other."""
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while (request := await _read_request(reader)) is not None:
                if not await self._exchange(request, reader, writer):
                    break
        writer.close()
        self._open.pop(task)

    async def close(self) -> None:
        """Close every connection, and wait until their tasks have ended."""
        tasks = dict(self._open)
        for writer in tasks.values():
            writer.close()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)

    async def _exchange(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Pass on one request and its answer. Returns False if the connection must be closed."""
        sent = replace(request, headers=dict(request.headers))
        if self.mutation is not None and self.mutation.request is not None:
            self.mutation.request(sent)
            self.changes_count += sent != request
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port, limit=HEAD_MAX_BYTES)
        try:
            far_writer.write(_request_bytes(sent))
            status, headers = await _read_head(far_reader)
            if headers.get("content-type", "").startswith("text/event-stream"):
                await self._stream(request, Answer(status, headers, None), far_reader, reader, writer)
                return False
            answer = Answer(status, headers, b"".join([chunk async for chunk in _body(far_reader, status, headers)]))
            self._change(request, answer)
            writer.write(_head_bytes(answer, f"content-length: {len(answer.body or b'')}"))
            writer.write(answer.body or b"")
            await writer.drain()
            return True
        finally:
            far_writer.close()

    def _change(self, request: Request, answer: Answer) -> None:
        if self.mutation is not None and self.mutation.answer is not None:
            before = answer.copy()
            self.mutation.answer(request, answer)
            self.changes_count += answer != before

    async def _stream(
        self,
        request: Request,
        answer: Answer,
        far: asyncio.StreamReader,
        near: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Pass a stream on until either side ends."""
        mutation = self.mutation
        headers = dict(answer.headers)
        self._change(request, answer)
        writer.write(_head_bytes(answer, "connection: close\r\ntransfer-encoding: chunked"))
        change = mutation.unit(request) if mutation is not None and mutation.unit is not None else None

        async def pump() -> None:
            rest = b""
            async for chunk in _body(far, answer.status, headers):
                units, rest = _units(rest + chunk)
                out = b"".join(self._changed(unit, change) for unit in units)
                if out:
                    writer.write(b"%x\r\n%b\r\n" % (len(out), out))
                    await writer.drain()
            if mutation is not None and mutation.never_ends:
                self.changes_count += 1
                await asyncio.Event().wait()
            writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(rest), rest) if rest else b"0\r\n\r\n")
            await writer.drain()

        tasks = {asyncio.create_task(pump()), asyncio.create_task(near.read(1))}  # a disconnected client reads as b""
        _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _changed(self, unit: bytes, change: UnitChange | None) -> bytes:
        if change is None:
            return unit
        changed = b"".join(change(unit))
        self.changes_count += changed != unit
        return changed


def _units(data: bytes) -> tuple[list[bytes], bytes]:
    """Split a stream into whole units and the beginning of the next unit."""
    units: list[bytes] = []
    start = at = 0
    while (end := data.find(b"\n", at)) != -1:
        line, at = data[at:end], end + 1
        if not line or (start == end - len(line) and line.startswith((b":", b"retry:"))):
            units.append(data[start:at])
            start = at
    return units, data[start:]


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    """Read the next request of a connection. Returns None if the client has disconnected."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, headers = _parsed(head)
    method, target, _ = first.split(" ", 2)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first, headers = _parsed(await reader.readuntil(b"\r\n\r\n"))
    return int(first.split(" ", 2)[1]), headers


def _parsed(head: bytes) -> tuple[str, dict[str, str]]:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (line.split(":", 1) for line in lines)
    return first, {name.lower(): value.strip() for name, value in pairs}


async def _body(reader: asyncio.StreamReader, status: int, headers: dict[str, str]) -> AsyncIterator[bytes]:
    """Yield the pieces of an answer's body as they arrive, without the chunked coding."""
    if status in (204, 304):
        return
    if headers.get("transfer-encoding") != "chunked":
        left = int(headers.get("content-length", "0"))
        while left and (piece := await reader.read(min(left, READ_BYTES))):
            left -= len(piece)
            yield piece
        return
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        yield (await reader.readexactly(size + 2))[:-2]


def _request_bytes(request: Request) -> bytes:
    lines = [f"{request.method} {request.target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in request.headers.items() if name not in HOP_HEADERS]
    lines += [f"content-length: {len(request.body)}", "connection: close"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + request.body


def _head_bytes(answer: Answer, length: str) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} of the proxy"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items() if name not in HOP_HEADERS]
    if answer.status not in (204, 304):
        lines.append(length)
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


@asynccontextmanager
async def proxy_to(url: str, mutation: Mutation | None) -> AsyncIterator[Proxy]:
    """Run a proxy to the server at `url` for a block. Without a mutation it changes nothing."""
    proxy = Proxy(int(url.rpartition(":")[2]), mutation)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=HEAD_MAX_BYTES)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
