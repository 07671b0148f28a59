"""Many readers of event streams in one light process: counts what comes, and how old the tokens in it are.

A reader is a socket that asks once and from then on only counts: events (their `data:` lines), and tokens of
`bench/model_server.py`, whose text says when they were written. It folds nothing and knows no protocol beyond that, so
that the machine's time goes to who is measured. Runs in a process of its own, told and asked over a pipe. The rule:
nothing counts before `mark` and after `marked`.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import uvloop

from bench.figures import quantile
from bench.model_server import TOKEN

__all__ = ["Seen", "StreamReaders", "stream_readers"]

_ANSWER_SECONDS = 30.0
"""For thousands of streams to open on a busy machine."""


class Seen(NamedTuple):
    """Since the mark, by all readers together. Ages in milliseconds, of each token when its bytes were read."""

    seconds: float
    tokens: int
    events: int
    least_tokens: int
    """Of the reader that got the fewest."""
    age_p50_ms: float
    age_p99_ms: float


class _Reader(asyncio.Protocol):
    def __init__(self, request: bytes, opened: "asyncio.Future[None]") -> None:
        self._request = request
        self._opened = opened
        self.is_counting = False
        self.tokens = 0
        self.events = 0
        self.ages: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are not asyncio's, but do the same
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._opened.done() and b"data:" in data:
            self._opened.set_result(None)
        if self.is_counting:
            now = time.monotonic()
            written = TOKEN.findall(data)
            self.ages += [now - int(each, 16) / 1e6 for each in written]
            self.tokens += len(written)
            self.events += data.count(b"\ndata:") + data.startswith(b"data:")

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._opened.done():
            self._opened.set_exception(ConnectionError(f"a stream ended before its first event: {exc!r}"))


def _read(pipe: Connection) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        readers: list[_Reader] = []
        marked_at = 0.0
        orders: asyncio.Queue[tuple[str, tuple[str, ...]]] = asyncio.Queue()
        loop.add_reader(pipe.fileno(), lambda: orders.put_nowait(pipe.recv()))
        while True:
            order, urls = await orders.get()
            if order == "open":
                readers += await asyncio.gather(*(_open(url) for url in urls))
                pipe.send(len(readers))
            elif order == "close":
                for reader in readers:
                    reader.transport.abort()
                readers.clear()
                pipe.send(0)
            elif order == "mark":
                for reader in readers:
                    reader.tokens = reader.events = 0
                    reader.ages, reader.is_counting = [], True
                marked_at = loop.time()
                pipe.send(0)
            else:
                for reader in readers:
                    reader.is_counting = False
                pipe.send(_seen(readers, loop.time() - marked_at))

    uvloop.run(run())


async def _open(url: str) -> _Reader:
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[None] = loop.create_future()
    request = f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: text/event-stream\r\n\r\n"
    _, reader = await loop.create_connection(
        lambda: _Reader(request.encode(), opened), str(parts.hostname), parts.port or 80
    )
    await opened
    return reader


def _seen(readers: list[_Reader], seconds: float) -> Seen:
    ages = [1_000 * age for reader in readers for age in reader.ages]
    return Seen(
        seconds=seconds,
        tokens=sum(reader.tokens for reader in readers),
        events=sum(reader.events for reader in readers),
        least_tokens=min((reader.tokens for reader in readers), default=0),
        age_p50_ms=quantile(ages, 0.5) if ages else 0.0,
        age_p99_ms=quantile(ages, 0.99) if ages else 0.0,
    )


class StreamReaders:
    """The process, as the measuring one sees it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def open(self, urls: list[str]) -> None:
        """One more reader for each; returns when each has had its first event."""
        self._ask("open", urls)

    def close_all(self) -> None:
        self._ask("close")

    def mark(self) -> None:
        """Begin to count."""
        self._ask("mark")

    def marked(self) -> Seen:
        """What came since the mark; nothing counts from now on."""
        return cast("Seen", self._ask("marked"))  # the pipe carries what `_read` sends

    def _ask(self, order: str, urls: list[str] | None = None) -> object:
        self._pipe.send((order, tuple(urls or ())))
        if not self._pipe.poll(_ANSWER_SECONDS):
            raise TimeoutError("the readers do not answer")
        answer: object = self._pipe.recv()
        return answer


@contextmanager
def stream_readers() -> Iterator[StreamReaders]:
    """A process of readers for the block."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_read, args=(theirs,), daemon=True)
    child.start()
    try:
        yield StreamReaders(ours)
    finally:
        child.terminate()
        child.join(5)
