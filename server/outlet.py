"""Blocks of a stream on the shortest way to their socket: one system call, no task, no layers of `send` between.

An answer begins through ASGI and ends through it. In between, while uvicorn has nothing of it left to write, a block
becomes a chunk of HTTP/1.1 and is given to the kernel where it is made (decision 0021). `server/http.py` lends an
outlet with each request; the relay's `Connection` uses it and knows none of this. The rule: `put` never waits, and
says False whenever anything is unusual; then ASGI's `send` is used, which waits, or finds out that the reader has left.
"""

import os

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from server.relay.connection import Put, put_nothing

__all__ = ["outlet"]


class _Last:
    """The last block, and its chunk: blocks are shared, so that most often the next reader needs it too. An object, and
    no attributes of the class of outlets: to write those makes the interpreter forget what it knows of the class, and
    where all readers have blocks of their own that cost as much as the making of a chunk (twice 0.3 us)."""

    __slots__ = ("block", "chunk")

    def __init__(self) -> None:
        self.block = self.chunk = b""


_last = _Last()


class _Outlet:
    """Of one answer."""

    __slots__ = ("_cycle", "_descriptor", "_transport")

    def __init__(self, cycle: RequestResponseCycle, descriptor: int) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self._descriptor = descriptor

    def put(self, block: bytes) -> bool:
        transport = self._transport
        if transport.is_closing() or self._cycle.response_complete:
            return False  # the descriptor may be somebody else's now, or the connection another answer's
        if transport.get_write_buffer_size():
            return False  # what was sent before comes first
        if block is not _last.block:
            _last.block, _last.chunk = block, b"%x\r\n%b\r\n" % (len(block), block)
        chunk = _last.chunk
        try:
            written = os.write(self._descriptor, chunk)
        except OSError:  # it takes nothing now, or never again; the transport knows what to do
            return False
        if written < len(chunk):
            transport.write(chunk[written:])
        return True


def outlet(cycle: RequestResponseCycle) -> Put:
    """The outlet of an answer that has begun."""
    if os.name != "posix" or cycle.transport.get_extra_info("sslcontext") is not None:
        return put_nothing
    if not cycle.chunked_encoding or cycle.response_complete:
        return put_nothing  # HEAD, or an answer of known length
    return _Outlet(cycle, cycle.transport.get_extra_info("socket").fileno()).put
