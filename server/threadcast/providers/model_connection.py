"""Keeps one HTTP/1.1 connection to a model server, sends requests, and returns the answer's bytes as they arrive.

Between socket and caller are only asyncio's transport and httptools' parser. At most one read is ahead of the caller:
reading pauses after each read and resumes when the caller wants more bytes. Within an answer, reading resumes at the
earliest one pace after the last read, so that small packets collect in the kernel. `model_http.py` creates and keeps
connections. An answer is complete only at the end that its framing determines; any other end raises an httpx2 error.
"""

import asyncio
import math
import selectors
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import httptools
import httpx2

from threadcast.base.append_pace import Ticks
from threadcast.base.deadlines import LOOK_SECONDS

__all__ = ["Head", "ModelConnection"]

AT_ONCE_COUNT = 4
"""The number of first reads of an answer that are not delayed: the role and the first words, for which a user waits."""

LARGE_READ_BYTES = 65_536
"""A read of this many bytes is not followed by a pause: more data is waiting, and pacing would slow down a large
answer."""

SLICE_BYTES = 262_144
"""Bytes of a request that are written at once. The kernel would accept more than 2 MB in one call, and such a call
takes 2 ms."""

HEAD_MAX_BYTES = 65_536
"""Maximum bytes of an answer's status and headers; h11 and aiohttp have similar limits."""


_Selector = selectors.PollSelector
"""poll(2) needs no file descriptor of its own, whereas epoll needs one."""


class Head(NamedTuple):
    status: int
    reason: bytes
    headers: list[tuple[bytes, bytes]]


class _Unasked(Exception):
    """Stops the parser."""


class ModelConnection(asyncio.Protocol):
    """A connection for one request at a time. `pace_seconds` returns the present pause between two reads of a body;
    after the pause, reading resumes at one of `ticks`."""

    def __init__(self, pace_seconds: Callable[[], float], ticks: Ticks) -> None:
        self._pace_seconds = pace_seconds
        self._ticks = ticks
        self._expires_at = math.inf
        self._is_looking = False
        self._expiry: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._is_lost = False
        self.idle_since = -math.inf
        self._begin()

    def _begin(self) -> None:
        self._end_expiry()
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._head_bytes = 0
        self._head: Head | None = None
        self._pieces: list[bytes] = []
        self._reads_count = 0
        self._next_read_at = -math.inf
        self._is_whole = self._may_go_on = False
        self._wrong: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    # the interface for the transport

    @property
    def is_reusable(self) -> bool:
        """Return whether the last answer was complete and the server accepts another request."""
        return self._is_whole and self._may_go_on and not self._is_lost

    def has_heard(self) -> bool:
        """Return whether an idle connection has data to read, which means that the server closed it and the loop has
        not reported this yet."""
        with _Selector() as look:
            look.register(self._transport.get_extra_info("socket"), selectors.EVENT_READ)
            return bool(look.select(0))

    @property
    def idle_seconds(self) -> float:
        return self._loop.time() - self.idle_since

    async def ask(self, request: Sequence[bytes], timeout_seconds: float | None) -> Head:
        """Send the pieces of the request and wait for the head of its answer. Raises httpx2.TransportError."""
        self._begin()
        if self._is_lost:
            raise httpx2.RemoteProtocolError("Server disconnected without sending a response.")
        await self._send(request)
        while self._head is None:
            await self._wait(timeout_seconds)
        return self._head

    async def _send(self, request: Sequence[bytes]) -> None:
        """Write the request in slices, between which other tasks run."""
        part: list[memoryview] = []
        room_bytes = SLICE_BYTES
        for piece in request:
            rest = memoryview(piece)
            while len(rest) > room_bytes and not self._is_lost:
                self._transport.writelines([*part, rest[:room_bytes]])
                part, rest, room_bytes = [], rest[room_bytes:], SLICE_BYTES
                await asyncio.sleep(0)
            part.append(rest)
            room_bytes -= len(rest)
        if not self._is_lost:
            self._transport.writelines(part)

    async def read(self, timeout_seconds: float | None) -> bytes:
        """Return the bytes of the body that arrived since the last read, at least one byte; b"" at the end of the body.
        Raises httpx2.TransportError."""
        while not self._pieces:
            if self._is_whole:
                return b""
            await self._wait(timeout_seconds)
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        return piece

    def rest(self) -> None:
        """Make the connection idle. Reading continues, so that the connection notices when the server closes it."""
        self.idle_since = self._loop.time()
        self._end_expiry()
        self._transport.resume_reading()

    def abort(self) -> None:
        self._is_lost = True
        self._end_expiry()
        self._transport.abort()

    async def _wait(self, timeout_seconds: float | None) -> None:
        """Wait for the next bytes or the end of the answer."""
        if self._wrong is not None:
            raise self._wrong
        waiter = self._waiter = self._loop.create_future()
        now = self._loop.time()
        if self._next_read_at > now:
            self._ticks.call_at(self._next_read_at, self._go_on)
        else:
            self._transport.resume_reading()
        if timeout_seconds is not None:
            self._expires_at = now + timeout_seconds
            self._is_looking = False
            if self._expiry is None:
                self._expiry = self._loop.call_at(self._expires_at, self._expire)
        try:
            await waiter
        finally:
            self._waiter = None
            self._expires_at = math.inf

    def _go_on(self) -> None:
        """Resume reading at the tick, unless the caller has stopped waiting."""
        if self._waiter is not None and not self._is_lost:
            self._transport.resume_reading()

    def _has_all(self) -> bool:
        """Return whether the answer is complete; the parser's callbacks may change this value."""
        return self._is_whole

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _expire(self) -> None:
        """Check the deadline of the present read; one timer serves all reads of an answer. At the deadline, the socket
        is read once more before the timeout is raised (`base/deadlines.py`)."""
        self._expiry = None
        if self._expires_at > self._loop.time():
            if self._expires_at < math.inf:
                self._expiry = self._loop.call_at(self._expires_at, self._expire)
        elif not self._is_looking and not self._is_lost:
            self._is_looking = True
            self._transport.resume_reading()
            self._expiry = self._loop.call_later(LOOK_SECONDS, self._expire)
        else:
            self._end(httpx2.ReadTimeout("no byte came in time"))

    def _end_expiry(self) -> None:
        """Stop the timer; the next answer may have a shorter timeout."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _end(self, wrong: Exception) -> None:
        """End an incomplete answer with an error; errors after the first are ignored."""
        self._wrong = self._wrong or wrong
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(self._wrong)

    # callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has other types with the same methods

    def data_received(self, data: bytes) -> None:
        if self._is_whole:  # unasked
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as wrong:
            if self._has_all():  # data after a complete answer does not affect it; the connection is not reused
                self._may_go_on = False
                self._wake()
                return
            self._end(httpx2.RemoteProtocolError(f"this is not an HTTP answer: {wrong}"))
            self.abort()
            return
        if self._head is None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_MAX_BYTES:
                self._end(httpx2.RemoteProtocolError(f"the head of the answer is larger than {HEAD_MAX_BYTES} bytes"))
                self.abort()
            return
        self._transport.pause_reading()
        self._reads_count += 1
        if self._reads_count > AT_ONCE_COUNT and len(data) < LARGE_READ_BYTES:
            self._next_read_at = self._loop.time() + self._pace_seconds()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        if self._is_whole:
            return
        if self._head is None:
            self._end(httpx2.RemoteProtocolError("Server disconnected without sending a response."))
        elif exc is not None:
            self._end(httpx2.ReadError(str(exc)))
        elif self._has_length:
            self._end(httpx2.RemoteProtocolError("peer closed connection without sending complete message body"))
        else:
            self._is_whole = True  # the end of the connection ends the body (RFC 9112 §6.3)
            self._wake()

    @property
    def _has_length(self) -> bool:
        assert self._head is not None
        return any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in self._head.headers)

    # callbacks of the parser

    def on_message_begin(self) -> None:
        if self._is_whole:  # the server sends a second answer without a request
            self._may_go_on = False
            raise _Unasked

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is None:  # a header after the body is a trailer, which is ignored (RFC 9110 §6.5.1)
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self._head = Head(status, self._reason, self._headers)
        self._headers, self._reason = [], b""  # an interim answer is discarded (RFC 9110 §15.2)

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._head is not None:
            self._is_whole = True
            self._may_go_on = bool(self._parser.should_keep_alive())  # the parser's value is valid only here
