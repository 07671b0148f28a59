"""Writes blocks of a stream directly to their socket: one system call, no task, no layers of `send`.

An answer begins and ends through ASGI. In between, while uvicorn has no unsent bytes, a block becomes a chunk of
HTTP/1.1 and goes to the kernel at once (decision 0021). `http/server.py` attaches the function to each request;
`ReaderConnection` calls it. `put` never waits, and returns False in every unusual case; then ASGI's `send` is used,
which waits, or notices that the reader has disconnected.
"""

import os

from threadcast.fanout.connection import Put, put_nothing
from threadcast.http.uvicorn_inside import RequestResponseCycle

__all__ = ["direct_send"]


class _Last:
    """Caches the last block and its chunk, since the next reader usually needs the same block. It is a separate object
    because writing class attributes invalidates the interpreter's caches of the class: where each reader has its own
    blocks, that costs as much as making a chunk (twice 0.3 us)."""

    __slots__ = ("block", "chunk")

    def __init__(self) -> None:
        self.block = self.chunk = b""


_last = _Last()


class _DirectSend:
    """Of one answer."""

    __slots__ = ("_cycle", "_descriptor", "_transport")

    def __init__(self, cycle: RequestResponseCycle, descriptor: int) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self._descriptor = descriptor

    def put(self, block: bytes) -> bool:
        transport = self._transport
        if transport.is_closing() or self._cycle.response_complete:
            return False  # the descriptor may belong to another file now, or the connection to another answer
        if transport.get_write_buffer_size():
            return False  # earlier bytes must be sent first
        if block is not _last.block:
            _last.block, _last.chunk = block, b"%x\r\n%b\r\n" % (len(block), block)
        chunk = _last.chunk
        try:
            written = os.write(self._descriptor, chunk)
        except OSError:  # the socket is full or closed; the transport handles both
            return False
        if written < len(chunk):
            transport.write(chunk[written:])
        return True


def direct_send(cycle: RequestResponseCycle) -> Put:
    """Return the direct send function of an answer that has begun."""
    if cycle.transport.get_extra_info("sslcontext") is not None:
        return put_nothing
    if not cycle.chunked_encoding or cycle.response_complete:
        return put_nothing  # HEAD, or an answer of known length
    return _DirectSend(cycle, cycle.transport.get_extra_info("socket").fileno()).put
