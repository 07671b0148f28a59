"""Writes blocks of a stream directly to their socket, in one system call, without a task and without the layers of
ASGI's `send`. Snapshots, which may be large, go to the transport without a copy.

An answer begins and ends through ASGI. In between, while uvicorn has no unsent bytes, a block becomes a chunk of
HTTP/1.1 and goes to the kernel at once (decision 0021). `http/server.py` attaches the function `begin_direct` to each
request; `ReaderConnection` writes with the result. `put` never waits, and returns False in every unusual case. The
caller then uses ASGI's `send`, which waits, or notices that the reader has disconnected.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from starlette.types import Message, Send

from threadcast.http.sockets import SEND_BUFFER_BYTES
from threadcast.http.uvicorn_inside import RequestResponseCycle
from threadcast.http.wide_buffers import WideBuffers

__all__ = ["DirectSend", "begin_direct"]


class _Last:
    """Caches the last block and its chunk, since the next reader usually needs the same block. It is a separate object
    because writing class attributes invalidates the interpreter's caches of the class: if each reader has its own
    blocks, this costs as much as making a chunk (twice 0.3 us)."""

    __slots__ = ("block", "chunk")

    def __init__(self) -> None:
        self.block = self.chunk = b""


_last = _Last()


class _HeadKeeper:
    """Takes the place of the transport while uvicorn writes the head of an answer, and keeps the head."""

    def __init__(self, transport: Any) -> None:  # Any: an asyncio.Transport, or what stands for it
        self.head = b""
        self._transport = transport

    def write(self, data: bytes) -> None:
        self.head += data

    def __getattr__(self, name: str) -> Any:  # Any: an attribute of the transport
        return getattr(self._transport, name)


class DirectSend:
    """Writes to the socket of one answer, whose head has not been sent yet. The first block takes the head along. If
    no block is written in this turn of the loop, the head is sent at the end of the turn."""

    __slots__ = ("_cycle", "_descriptor", "_flow", "_head", "_is_wide", "_transport", "_wide_buffers")

    def __init__(self, cycle: RequestResponseCycle, descriptor: int, head: bytes, wide_buffers: WideBuffers) -> None:
        self._cycle = cycle
        self._transport = cycle.transport
        self._flow = cycle.flow
        self._descriptor = descriptor
        self._head = head
        self._wide_buffers = wide_buffers
        self._is_wide = False

    def is_ready(self) -> bool:
        """Whether no bytes wait for the reader."""
        return not self._is_over() and not self._transport.get_write_buffer_size()

    def put_large(self, pieces: Sequence[bytes | memoryview]) -> bool:
        """Hand bytes to the transport, which refers to them until the reader has taken them. Returns False if the
        caller must wait for the reader with `drained`."""
        if not self._is_over():
            head, self._head = self._head, b""
            size = sum(map(len, pieces))
            if size > SEND_BUFFER_BYTES:
                self._is_wide = self._wide_buffers.widen(self._flow, self._transport, self._descriptor, size)
            self._transport.writelines([b"%b%x\r\n" % (head, size), *pieces, b"\r\n"])
        return not self._flow.write_paused

    async def drained(self) -> None:
        """Wait until the reader has taken nearly all bytes, or has disconnected."""
        await self._flow.drain()

    def unsent(self) -> int:
        """Return the number of bytes that wait for the reader, including those in a larger buffer of the kernel."""
        return self._transport.get_write_buffer_size() + self._wide_buffers.unreceived_bytes(self._flow)

    def send_head(self) -> None:
        """Send the head, unless it was sent with a block."""
        if self._head and not self._is_over():
            self._transport.write(self._head)
            self._head = b""

    def _is_over(self) -> bool:
        """Whether the descriptor may belong to another file now, or the connection to another answer."""
        return self._transport.is_closing() or self._cycle.response_complete or self._cycle.disconnected

    def put(self, block: bytes) -> bool:
        """Write a whole block at once. Returns False, without writing, if the caller must use ASGI's `send`."""
        transport = self._transport
        if transport.is_closing() or self._cycle.response_complete:  # as `_is_over`, without a call for each event
            return False
        if transport.get_write_buffer_size():
            return False  # earlier bytes must be sent first
        if self._is_wide and self._wide_buffers.narrow_if_sent(self._flow):
            self._is_wide = False
        if block is not _last.block:
            _last.block, _last.chunk = block, b"%x\r\n%b\r\n" % (len(block), block)
        chunk = _last.chunk
        if self._head:
            head, self._head = self._head, b""
            transport.writelines([head, chunk])
            return True
        try:
            written = os.write(self._descriptor, chunk)
        except OSError:  # the socket is full or closed; the transport handles both
            return False
        if written < len(chunk):
            transport.write(chunk[written:])
        return True


async def begin_direct(
    cycle: RequestResponseCycle, wide_buffers: WideBuffers, send: Send, start: Message
) -> DirectSend | None:
    """Begin an answer by passing its first ASGI message, `start`, to `send`. Returns the `DirectSend` that writes the
    rest of the answer; None if the answer cannot be written directly."""
    transport = cycle.transport
    if transport.get_extra_info("sslcontext") is not None:
        await send(start)
        return None
    keeper = _HeadKeeper(transport)
    cycle.transport = keeper  # type: ignore[assignment] # it passes all other calls on
    try:
        await send(start)
    finally:
        cycle.transport = transport
    if not cycle.chunked_encoding or cycle.response_complete:  # HEAD, or an answer of known length
        if keeper.head:
            transport.write(keeper.head)
        return None
    direct = DirectSend(cycle, transport.get_extra_info("socket").fileno(), keeper.head, wide_buffers)
    asyncio.get_running_loop().call_soon(direct.send_head)
    return direct
