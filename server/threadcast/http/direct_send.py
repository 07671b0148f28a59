"""Writes blocks of a stream directly to their socket, in one system call, without a task and without the layers of
ASGI's `send`. Snapshots, which may be large, go to the transport without a copy.

An answer begins and ends through ASGI. In between, while uvicorn has no unsent bytes, a block becomes a chunk of
HTTP/1.1 and goes to the kernel at once (decision 0021). `http/server.py` attaches the function `direct_send` to each
request; `ReaderConnection` calls it. `put` never waits, and returns False in every unusual case. The caller then uses
ASGI's `send`, which waits, or notices that the reader has disconnected.
"""

import os
from collections.abc import Sequence

from threadcast.fanout.connection import Put, put_nothing
from threadcast.http.uvicorn_inside import RequestResponseCycle

__all__ = ["DirectSend", "direct_send", "large_send"]


HEAD_MAX_BYTES = 4_096
"""Maximum unsent bytes in the transport when it is given a snapshot: room for the head of the answer, which has some
hundred bytes."""


class _Last:
    """Caches the last block and its chunk, since the next reader usually needs the same block. It is a separate object
    because writing class attributes invalidates the interpreter's caches of the class: if each reader has its own
    blocks, this costs as much as making a chunk (twice 0.3 us)."""

    __slots__ = ("block", "chunk")

    def __init__(self) -> None:
        self.block = self.chunk = b""


_last = _Last()


class DirectSend:
    """Writes to the socket of one answer."""

    __slots__ = ("_cycle", "_descriptor", "_flow", "_transport")

    def __init__(self, cycle: RequestResponseCycle, descriptor: int) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self._flow = cycle.flow
        self._descriptor = descriptor

    def is_ready(self) -> bool:
        """Whether nothing but the head of the answer waits to be sent."""
        transport = self._transport
        return not self._is_over() and transport.get_write_buffer_size() <= HEAD_MAX_BYTES

    def put_large(self, pieces: Sequence[bytes | memoryview]) -> bool:
        """Hand bytes to the transport, which refers to them until the reader has taken them. The process sends them at
        the end of this turn of the loop, together with the head of the answer. Returns False if the caller must wait
        for the reader with `drained`."""
        if not self._is_over():
            self._transport.writelines([b"%x\r\n" % sum(map(len, pieces)), *pieces, b"\r\n"])
        return not self._flow.write_paused

    async def drained(self) -> None:
        """Wait until the reader has taken nearly all bytes, or has disconnected."""
        await self._flow.drain()

    def unsent(self) -> int:
        return self._transport.get_write_buffer_size()

    def _is_over(self) -> bool:
        """Whether the descriptor may belong to another file now, or the connection to another answer."""
        return self._transport.is_closing() or self._cycle.response_complete or self._cycle.disconnected

    def put(self, block: bytes) -> bool:
        transport = self._transport
        if transport.is_closing() or self._cycle.response_complete:  # as `_is_over`, without a call for each event
            return False
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
    """Return the function that writes to the socket of an answer that has begun."""
    direct = large_send(cycle)
    return put_nothing if direct is None else direct.put


def large_send(cycle: RequestResponseCycle) -> DirectSend | None:
    """Return the `DirectSend` of an answer that has begun; None if the answer cannot be written directly."""
    if cycle.transport.get_extra_info("sslcontext") is not None:
        return None
    if not cycle.chunked_encoding or cycle.response_complete:
        return None  # HEAD, or an answer of known length
    return DirectSend(cycle, cycle.transport.get_extra_info("socket").fileno())
