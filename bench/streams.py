"""Opens many streams of one server from one process, with little memory: raw sockets and one epoll, and no received
bytes are kept.

`open` returns when each stream has received an expected text. After that no stream is read, so that only the server
works. The server must be on loopback. Another status than 200, or the end of a stream, is an error; a request with
status 503 is repeated and counted.
"""

import resource
import select
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

__all__ = ["GREETED", "Streams", "allow_open_files", "get", "open_files_max"]

AT_ONCE = 500
"""The number of connections that are opened together; the listening queue holds 2,048."""

DEADLINE_SECONDS = 60.0
"""Time limit for the next stream to begin. On a busy machine 10,000 streams take one to five minutes."""

GREETED = b"\n: hb "
"""The text that shows that one of our streams has begun: its first heartbeat."""

READ_BYTES = 262_144


def get(path: str, place: str = "", headers: Mapping[str, str] | None = None) -> bytes:
    """Return the request for a path. `place` is the SSE id after which the stream resumes."""
    resumed = {"Last-Event-ID": place} if place else {}
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**resumed, **(headers or {})}.items())
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n".encode()


def open_files_max() -> int:
    """Return how many files this process and each of its children may have open, once the soft limit is raised."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def allow_open_files(count: int) -> None:
    """Raise the limit of open files for this process and its children. Raises SystemExit if that is not allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if open_files_max() < count:
            raise SystemExit(f"{count:,} open files are needed and {hard:,} allowed; raise it with ulimit -Hn")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


class Streams:
    """Open streams, which are closed at the end of the `with` block. `received` counts bytes, `refused` the answers
    503. `seconds` has the time of each opening, in the order in which they ended. `receive_bytes` is the size of the
    kernel's receive buffer of each stream; `kept` takes the received bytes."""

    def __init__(self, url: str, receive_bytes: int = 0, kept: bytearray | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None, url
        self._address = (parts.hostname, parts.port)
        self._receive_bytes = receive_bytes
        self._kept = kept
        self._open: list[socket.socket] = []
        self.received = 0
        self.refused = 0
        self.seconds: list[float] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        for stream in self._open:
            stream.close()
        self._open.clear()

    def open(self, requests: Iterable[bytes], until: bytes = GREETED, at_once: int = AT_ONCE) -> None:
        """Open streams and read each one until it has received `until`. Raises AssertionError for a wrong answer,
        TimeoutError."""
        wanted = iter(requests)
        inflight: dict[int, _Opening] = {}
        deadline = time.monotonic() + DEADLINE_SECONDS
        with select.epoll() as epoll:
            while True:
                while len(inflight) < at_once and (request := next(wanted, None)) is not None:
                    self._begin(request, until, epoll, inflight)
                if not inflight:
                    return
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(inflight)} of {len(self._open)} streams did not begin")
                for number, _ in epoll.poll(1):
                    opening = inflight[number]
                    if not opening.read():
                        continue
                    deadline = time.monotonic() + DEADLINE_SECONDS
                    epoll.unregister(number)
                    del inflight[number]
                    self.received += opening.received
                    if opening.is_refused:
                        self.refused += 1
                        self._begin(opening.request, until, epoll, inflight)
                    else:
                        self.seconds.append(time.perf_counter() - opening.asked_at)

    def ask(self, requests: Sequence[bytes]) -> None:
        """Open streams and read no byte."""
        for request in requests:
            self._connect(request)

    def _begin(self, request: bytes, until: bytes, epoll: select.epoll, inflight: "dict[int, _Opening]") -> None:
        stream = self._connect(request)
        inflight[stream.fileno()] = _Opening(stream, request, until, self._kept)
        epoll.register(stream, select.EPOLLIN)

    def _connect(self, request: bytes) -> socket.socket:
        stream = socket.socket()
        if self._receive_bytes:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
        stream.connect(self._address)
        stream.setblocking(False)
        stream.send(request)
        self._open.append(stream)
        return stream


class _Opening:
    """A stream that has not received the expected text."""

    def __init__(self, stream: socket.socket, request: bytes, until: bytes, kept: bytearray | None) -> None:
        self.request = request
        self.is_refused = False
        self.asked_at = time.perf_counter()
        self.received = 0
        self._stream = stream
        self._until = until
        self._kept = kept
        self._tail = b""

    def read(self) -> bool:
        """Read the received bytes. Returns whether the expected text has arrived or the request was refused."""
        with suppress(BlockingIOError):
            while True:
                data = self._stream.recv(READ_BYTES)
                assert data, f"a stream ended after {self.received} bytes: {self._tail!r}"
                if not self.received and data.startswith(b"HTTP/1.1 503"):
                    self.is_refused = True
                    return True
                assert self.received or data.startswith(b"HTTP/1.1 200"), data[:300]
                self.received += len(data)
                if self._kept is not None:
                    self._kept += data
                if self._until in self._tail + data:
                    return True
                self._tail = (self._tail + data[-len(self._until) :])[-len(self._until) :]
        return False
