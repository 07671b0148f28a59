"""Limits the headers, the time, the pipelined requests and the discarded bytes of a connection; other modules limit the
bodies of its requests.

`BoundedConnection` is one connection: uvicorn's HTTP protocol, extended by a limit and a deadline for headers and a
limit for silent connections. A refused connection gets an answer that says why. It is closed once the client has had
time to read that answer.
"""

import asyncio
import logging
import math
import re
import time
from typing import Any, NoReturn

from threadcast.base.lean_event import LeanEvent
from threadcast.http.admission import Connections, Refusal
from threadcast.http.uvicorn_inside import HttpToolsProtocol, RequestResponseCycle

__all__ = ["LINGER_SECONDS", "PIPELINED_MAX", "BoundedConnection"]

_uvicorn_log = logging.getLogger("uvicorn.error.requests")
"""uvicorn's log for connections, without its warnings: uvicorn warns about each invalid request, so callers could fill
the disk with warnings. `Connections.note` logs invalid requests at a limited rate."""
_uvicorn_log.setLevel(logging.ERROR)

LINGER_SECONDS = 2.0
"""Seconds of silence after which a connection that has had its last answer is closed. Until then the bytes that still
arrive are read and discarded: closing a socket with unread bytes resets the connection, and the client might lose the
answer (RFC 9112 §9.6). nginx waits for 5 s; these connections count as open ones, so we wait for a shorter time. A
client that goes on sending is read for `limits.body_timeout_seconds`, up to `DISCARDED_BODIES`."""

DISCARDED_BODIES = 2
"""Bytes that are discarded after an answer before the connection is reset, as a multiple of `limits.body_max_bytes`.
Many clients read only after they have sent their whole body, which most often is a little above the limit."""

DISCARD_PAUSE_SECONDS = 0.02
"""Seconds between two reads of discarded bytes; one read takes at most 256 KiB. Without this pause, a client that keeps
sending after its refusal would occupy the process."""

PIPELINED_MAX = 100
"""Maximum number of requests of one connection that may wait for the answers to earlier requests (RFC 9112 §9.3.2). One
read can contain thousands of requests, and each takes kilobytes. Browsers and HTTP libraries send one request at a
time."""


_PROBE = re.compile(rb"(GET|HEAD) /(livez|readyz)[? ]")
"""Matches the beginning of a request for the server's health, which is answered even on a connection beyond the
maximum: an orchestrator that gets no answer would kill a server that is merely full."""


class _Excess(Exception):
    """Raised inside the parser, which stops at this exception."""


class _ClosedLater:
    """Stands for the transport of a connection whose request is answered before its body has arrived. uvicorn would
    close the connection at once after its last answer."""

    def __init__(self, connection: "BoundedConnection") -> None:
        self._connection = connection
        self.close = connection.close_after_body

    def __getattr__(self, name: str) -> Any:  # Any: an attribute of the transport
        return getattr(self._connection.transport, name)


class _Pipeline(list[tuple[RequestResponseCycle, Any]]):  # Any: uvicorn's own type of applications
    """The requests of a connection that wait for the answers to earlier requests. The class has those methods of a
    deque that uvicorn calls. An empty deque takes 760 bytes, and hardly any connection has such requests."""

    __slots__ = ()

    def appendleft(self, waiting: tuple[RequestResponseCycle, Any]) -> None:
        self.insert(0, waiting)


class BoundedConnection(HttpToolsProtocol):
    """A connection that limits the part of a request before its body."""

    # uvicorn's own attributes and these would be more than the 30 for which Python shares the keys of all instances'
    # dictionaries; each connection would then take 1.3 kB more.
    __slots__ = (
        "_address",
        "_bounds",
        "_discarded_bytes",
        "_framing_bytes",
        "_has_begun",
        "_head_bytes",
        "_is_in_body",
        "_is_over",
        "_is_probe",
        "_limits",
        "_over_until",
        "_refusal",
        "_running",
        "_timer",
        "_unsent_bytes",
        "_unsent_timer",
        "began_at",
    )

    def __init__(self, connections: Connections, **uvicorn: Any) -> None:  # Any: what uvicorn passes to its protocols
        super().__init__(**uvicorn)
        self.logger = _uvicorn_log
        self.pipeline = _Pipeline()  # type: ignore[assignment] # uvicorn declares a deque
        self._bounds = connections
        self._limits = connections.limits
        self.began_at = time.monotonic()
        self._address = ""
        self._refusal: Refusal | None = None
        self._has_begun = False
        """Whether bytes of a request have been handled. Until then, the connection may wait for its turn."""
        self._is_probe = False
        """Whether this connection is beyond the maximum and asks for the server's health."""
        self._is_over = False
        """Whether the connection has had its last answer; bytes that arrive are discarded."""
        self._over_until = -math.inf
        self._discarded_bytes = 0
        """Number of bytes that were discarded since the last answer."""
        self._running: RequestResponseCycle | None = None
        """The request that is being answered; `cycle` is the last request that has arrived."""
        self._is_in_body = False
        self._framing_bytes = 0
        """Bytes of chunk extensions and trailers since the last byte of the body. A read that contains bytes of the
        body counts as 0."""
        self._head_bytes: int | None = None
        """Number of bytes of the present head that have arrived; None between requests and in a body."""
        self._timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0
        self._unsent_timer: asyncio.TimerHandle | None = None

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn declares it
        super().connection_made(transport)
        self.flow._is_writable_event = LeanEvent()
        self.flow._is_writable_event.set()
        self._address = self.client[0] if self.client else ""
        self._refusal = self._bounds.enter(self._address)
        if self._refusal is None:
            self._start_timer(self._limits.header_timeout_seconds)
            return
        self._start_timer(LINGER_SECONDS)
        if (oldest := self._bounds.linger(self)) is not None:
            oldest.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._unsent_timer is not None:
            self._unsent_timer.cancel()
        self._bounds.leave(self._address)
        self._bounds.newcomers.forget(self)
        self._bounds.wide_buffers.forget(self.flow, is_reset=exc is not None)
        self._bounds.lingering.pop(self, None)
        if self._running is not None and not self._running.response_complete:  # uvicorn tells `cycle` alone
            self._disconnect(self._running)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # uvicorn omits this after a reset: the timer keeps this object for 75 s

    def data_received(self, data: bytes) -> None:
        if self._is_over or (self._is_in_body and self._is_answered()):
            self._discarded_bytes += len(data)
            if self._discarded_bytes > DISCARDED_BODIES * self._limits.body_max_bytes:
                self._end(None)
                return
            self.flow.pause_reading()
            self.loop.call_later(DISCARD_PAUSE_SECONDS, self._read_on)
        if self._is_over:
            self._start_timer(max(0.0, min(LINGER_SECONDS, self._over_until - self.loop.time())))
            return
        if self._refusal is not None and not self._is_probe:
            if _PROBE.match(data) is None:  # refused only now, since clients expect no answer before their request
                self._refuse(self._refusal)
                return
            self._is_probe = True
        newcomers = self._bounds.newcomers
        may_wait = not self._has_begun and (newcomers.waits(self) or data.startswith(b"GET "))
        if may_wait and _PROBE.match(data) is None and newcomers.holds(self, data):
            return
        self.begin(data)

    def begin(self, data: bytes) -> None:
        """Handle bytes of a request, unless the client has disconnected."""
        if self.transport.is_closing():
            return
        self._has_begun = True
        if self._is_in_body:
            self._framing_bytes += len(data)
        else:
            self._head_bytes = (self._head_bytes or 0) + len(data)
        super().data_received(data)
        if self._has_ended() or self.transport.is_closing():
            return
        self._check_progress()
        if self._is_in_body and self.cycle.transport is self.transport:  # its application has not begun yet
            self.cycle.transport = _ClosedLater(self)  # type: ignore[assignment] # it passes all other calls on

    def on_response_complete(self) -> None:
        self._running = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        self._watch_unsent()
        if self._is_in_body and self._is_answered() and not self._is_over:
            self._start_timer(self._limits.body_timeout_seconds)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_unsent()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_unsent()

    def _watch_unsent(self) -> None:
        """Begin to watch whether the client takes the unsent bytes, because closing the connection would also wait
        until they are sent."""
        if self._unsent_timer is None and self.transport.get_write_buffer_size():
            self._unsent_bytes = 0
            self._unsent_timer = self.loop.call_later(self._limits.subscriber_stall_seconds, self._check_unsent)

    def _check_unsent(self) -> None:
        """Drop the connection if no byte was sent since the last check. The first check only records the number of
        unsent bytes. So a stream, which has the same time limit, ends and counts its stalled reader before this check
        drops the connection."""
        self._unsent_timer = None
        waiting = self.transport.get_write_buffer_size()
        unsent = waiting + self._bounds.wide_buffers.unreceived_bytes(self.flow)
        if waiting and unsent == self._unsent_bytes:
            self.transport.abort()
        elif waiting:
            self._unsent_bytes = unsent
            self._unsent_timer = self.loop.call_later(self._limits.subscriber_stall_seconds, self._check_unsent)

    def _check_progress(self) -> None:
        """Check the size of the part of a request that has arrived, and set the timer for the rest."""
        if (self._framing_bytes if self._is_in_body else self._head_bytes or 0) > self._limits.header_max_bytes:
            self._refuse(self._bounds.head_too_large)
        elif self._head_bytes is not None:
            if self._timer is None:
                self._start_timer(self._limits.header_timeout_seconds)
        elif not self._is_answered():
            self._stop_timer()
        elif not self._is_in_body and self.timeout_keep_alive_task is None:
            # The body ended after its answer: uvicorn has stopped its timer at the first byte.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _is_answered(self) -> bool:
        """Return whether every request whose headers have arrived has its answer."""
        return self.cycle is not None and self.cycle.response_complete and not self.pipeline

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        self._head_bytes = self._head_bytes or 1  # a request may begin in the chunk that ends the body before it
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._check_head(len(self.url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_body:  # a trailer, which must not be taken for a header (RFC 9110 §6.5.1)
            return
        super().on_header(name, value)
        if len(self.headers) > self._limits.headers_max:
            self._check_head(self._limits.header_max_bytes + 1)

    def on_headers_complete(self) -> None:
        head_bytes, hosts = len(self.url), 0
        for name, value in self.headers:
            head_bytes += len(name) + len(value) + 4
            hosts += name == b"host"
        self._check_head(head_bytes)
        if hosts > 1:  # a proxy may have used the other one (RFC 9112 §3.2)
            self._stop(self._bounds.invalid)
        if len(self.pipeline) >= PIPELINED_MAX or (self._is_probe and self._running is not None):
            self._stop(self._bounds.too_many_requests)
        self._head_bytes = None
        self._framing_bytes = 0
        self._discarded_bytes = 0
        self._is_in_body = True
        super().on_headers_complete()
        self.cycle.message_event = LeanEvent()  # nothing waits for the former event yet
        if self._is_probe:
            self.cycle.keep_alive = False
        if not self.pipeline:
            self._running = self.cycle

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._stop_timer()  # the next bytes are another head, with its own time limit
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse the request at which the parser stopped, for invalid HTTP or by `_Excess`."""
        self._refuse(self._refusal or self._bounds.invalid)

    def _check_head(self, head_bytes: int) -> None:
        if head_bytes > self._limits.header_max_bytes:
            self._stop(self._bounds.head_too_large)

    def _stop(self, refusal: Refusal) -> NoReturn:
        """Stop the parser, which then calls `send_400_response`."""
        self._refusal = refusal
        raise _Excess

    # The end.

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def close_after_body(self) -> None:
        """Close the connection after its last answer. If the client still sends its body, the body is discarded
        first."""
        if self._is_in_body and not self.transport.is_closing():
            self._linger()
        else:
            self.transport.close()

    def drop(self) -> None:
        """Close a connection beyond the maximum now, to make room for a newer one."""
        self._end(None if self._is_over or self._is_probe else self._refusal)

    def _has_ended(self) -> bool:
        return self._is_over

    def _on_timeout(self) -> None:
        self._timer = None
        if self._is_over and self.transport.get_write_buffer_size():
            self._start_timer(LINGER_SECONDS)  # `_check_unsent` ends a client that does not read
        elif self._is_over or self._head_bytes is None:  # the time to linger is over, or no request came
            self._end(None if self._is_over else self._refusal or self._bounds.silent)
        else:
            self._refuse(self._bounds.head_too_late)

    def _refuse(self, refusal: Refusal) -> None:
        """Answer with `refusal`, discard all further bytes, and close soon."""
        running = None if self._is_answered() else self._running
        if running is not None:
            if running.response_started or self.pipeline:  # the client would read it as a part of that answer
                self._hold(running, refusal)
                return
            self._disconnect(running)
        self._bounds.note(refusal, self._address)
        self.transport.write(refusal.answer)
        self._linger()

    def _disconnect(self, running: RequestResponseCycle) -> None:
        """Tell the application that its client has disconnected. The rest of its answer is discarded."""
        running.disconnected = True
        running.message_event.set()

    def _linger(self) -> None:
        """Send nothing more, and discard all bytes that arrive, until the client closes the connection or
        `LINGER_SECONDS` pass in silence."""
        self._is_over = True
        self._over_until = self.loop.time() + self._limits.body_timeout_seconds
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._watch_unsent()
        self._start_timer(LINGER_SECONDS)

    def _hold(self, running: RequestResponseCycle, refusal: Refusal) -> None:
        """Send no further answer, read no further bytes, and close the connection after `LINGER_SECONDS`. If the
        connection were closed at once, the client could connect again at once, and each connection costs up to
        `PIPELINED_MAX` requests."""
        self._bounds.note(refusal, self._address)
        self._is_over = True
        self._disconnect(running)
        self.pipeline.clear()
        self.flow.pause_reading()
        self._stop_timer()
        self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _end(self, refusal: Refusal | None) -> None:
        """Close the connection at once."""
        if refusal is not None:
            self._bounds.note(refusal, self._address)
        self._is_over = True
        self.transport.abort()

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._on_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
