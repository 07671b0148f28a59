"""A small TCP proxy that misbehaves on request, as a network does between two programs that trust it.

    async with Proxy("worker-1 > store", target=("127.0.0.1", 6379)) as proxy:
        ...  # connect to ("127.0.0.1", proxy.port)
        proxy.reset()

A proxy forwards bytes between one pair of programs. The `target` of a proxy can be changed while the proxy runs, so
that a process that restarts on another port is reached at the same address. A fault with a duration ends by itself;
`heal` ends all faults. Bytes are forwarded unchanged and in order, or the connection ends.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

__all__ = ["CHUNK_BYTES", "Proxy", "Target"]

Target: TypeAlias = tuple[str, int] | Path
"""A TCP address, or the path of a Unix socket."""

CHUNK_BYTES = 64 * 1024
"""Maximum bytes of one read. The proxy buffers about this many bytes in one direction, so that a writer notices a slow
reader."""

CONNECT_SECONDS = 2.0
"""Seconds to connect to the target, on the same machine; the kernel accepts connections even for a stopped process."""

_NO_LINGER = struct.pack("ii", 1, 0)


class _Line:
    """One connection through the proxy: two sockets and their faults."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.is_swallowing = False
        self.drops_next_reply = False

    def ends(self) -> list[asyncio.StreamWriter]:
        return [self.client] if self.server is None else [self.client, self.server]

    def cut(self) -> None:
        """End both sides in order (FIN), after the bytes that are on their way."""
        for end in self.ends():
            end.close()

    def reset(self) -> None:
        """Reset both sides (RST); bytes that are on their way are lost."""
        for end in self.ends():
            sock = end.get_extra_info("socket")
            if sock is not None and not end.transport.is_closing():
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            end.transport.abort()


class Proxy:
    """A listening port on loopback that forwards to `target`. Enter it once.

    `opened` counts the connections so far, `hit` the connections that a fault has ended or silenced, and
    `replies_dropped` the replies that were dropped although their request had reached the target.
    """

    def __init__(self, name: str, target: Target | None = None) -> None:
        self.name = name
        self.target = target
        self.port = 0
        self.opened = 0
        self.hit = 0
        self.replies_dropped = 0
        self._server: asyncio.Server | None = None
        self._lines: set[_Line] = set()
        self._drops = 0
        self._delay_seconds = 0.0
        self._bytes_per_second = 0.0
        self._is_refusing = False
        self._timers: set[asyncio.TimerHandle] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=CHUNK_BYTES, backlog=1_024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.heal()
        if self._server is not None:
            self._server.close()
        for line in list(self._lines):
            line.reset()
        while self._lines:
            await asyncio.sleep(0)  # the tasks of a connection end shortly after its sockets did

    @property
    def lines_count(self) -> int:
        """Connections open now."""
        return len(self._lines)

    @property
    def is_troubled(self) -> bool:
        """Return whether a fault with a duration is active now."""
        return bool(self._timers)

    # Faults. Each method that ends or silences connections returns the number of these connections.

    def cut(self, one_in: int = 1) -> int:
        """Close every connection, or one in `one_in` of them, in order (FIN)."""
        return self._strike(_Line.cut, one_in)

    def reset(self, one_in: int = 1) -> int:
        """Reset every connection, or one in `one_in` of them (RST)."""
        return self._strike(_Line.reset, one_in)

    def swallow(self, seconds: float, one_in: int = 1) -> int:
        """Make connections half-open: bytes of either side are accepted and never arrive, without any error. After
        `seconds` these connections are reset; new connections work meanwhile."""
        lines = list(self._lines)[::one_in]
        for line in lines:
            line.is_swallowing = True
        self.hit += len(lines)

        def end() -> None:
            for line in lines:
                line.reset()

        self._later(seconds, end)
        return len(lines)

    def sever(self, seconds: float, one_in: int = 1) -> int:
        """Make connections half closed: the proxy resets them to the target at once, and to the clients only after
        `seconds`. New connections work meanwhile."""
        count = self.swallow(seconds, one_in)
        for line in list(self._lines)[::one_in]:
            if line.server is not None:
                line.server.transport.abort()
        return count

    def drop_replies(self, count: int = 1) -> None:
        """Forward the next `count` requests, and reset the connection in place of each reply."""
        self._drops += count

    def delay(self, delay_seconds: float, seconds: float) -> None:
        """Delay every chunk by `delay_seconds` in either direction, for `seconds`."""
        self._delay_seconds = delay_seconds
        self._later(seconds, lambda: self._set(delay=0.0))

    def throttle(self, bytes_per_second: float, seconds: float) -> None:
        """Limit each direction of each connection to this many bytes a second, for `seconds`."""
        self._bytes_per_second = bytes_per_second
        self._later(seconds, lambda: self._set(rate=0.0))

    def refuse(self, seconds: float) -> int:
        """Refuse all traffic for `seconds`: reset open connections, and reset new connections at once."""
        self._is_refusing = True
        self._later(seconds, lambda: self._set(refusing=False))
        return self.reset()

    def heal(self) -> None:
        """End all faults now. Silenced connections are reset, because their lost bytes cannot come back."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._drops = 0
        self._set(delay=0.0, rate=0.0, refusing=False)
        for line in self._lines:
            if line.is_swallowing:
                line.reset()

    def _set(self, *, delay: float | None = None, rate: float | None = None, refusing: bool | None = None) -> None:
        self._delay_seconds = self._delay_seconds if delay is None else delay
        self._bytes_per_second = self._bytes_per_second if rate is None else rate
        self._is_refusing = self._is_refusing if refusing is None else refusing

    def _strike(self, how: Callable[[_Line], None], one_in: int = 1) -> int:
        lines = list(self._lines)[::one_in]
        for line in lines:
            how(line)
        self.hit += len(lines)
        return len(lines)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.discard(timer)
            act()

        timer = asyncio.get_running_loop().call_later(seconds, run)
        self._timers.add(timer)

    # The way through.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection, from its first byte to the end of both sides."""
        line = _Line(writer)
        self._lines.add(line)
        self.opened += 1
        try:
            if self._is_refusing or self.target is None:
                line.reset()
                return
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    far_reader, line.server = await _connect(self.target)
            except OSError:  # TimeoutError is an OSError
                line.reset()
                return
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(line, reader, line.server, self._asked))
                tasks.create_task(self._pump(line, far_reader, writer, self._answered))
        finally:
            self._lines.discard(line)
            for end in line.ends():
                end.close()

    async def _pump(
        self,
        line: _Line,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        passes: Callable[[_Line], bool],
    ) -> None:
        """Forward one direction until it ends, which ends the other direction too."""
        try:
            while chunk := await reader.read(CHUNK_BYTES):
                if line.is_swallowing:
                    continue
                if not passes(line):
                    return
                if self._delay_seconds:
                    await asyncio.sleep(self._delay_seconds)
                if self._bytes_per_second:
                    await self._trickle(line, chunk, writer)
                else:
                    writer.write(chunk)
                await writer.drain()
        except (OSError, RuntimeError):  # either side broke; uvloop raises RuntimeError for a closed transport
            if not line.is_swallowing:
                line.reset()
        finally:
            if not line.is_swallowing:
                line.cut()

    async def _trickle(self, line: _Line, chunk: bytes, writer: asyncio.StreamWriter) -> None:
        at = 0
        while at < len(chunk) and not line.is_swallowing:
            rate = self._bytes_per_second
            piece = chunk[at : at + max(1, int(rate / 20))] if rate else chunk[at:]  # twenty steps a second
            writer.write(piece)
            at += len(piece)
            if rate:
                await asyncio.sleep(len(piece) / rate)

    def _asked(self, line: _Line) -> bool:
        if self._drops > 0 and not line.drops_next_reply:
            self._drops -= 1
            line.drops_next_reply = True
        return True

    def _answered(self, line: _Line) -> bool:
        if line.drops_next_reply:
            self.replies_dropped += 1
            self.hit += 1
            line.reset()
            return False
        return True


def _connect(target: Target) -> Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    if isinstance(target, Path):
        return asyncio.open_unix_connection(str(target), limit=CHUNK_BYTES)
    return asyncio.open_connection(*target, limit=CHUNK_BYTES)
