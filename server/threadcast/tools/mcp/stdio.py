"""Runs an MCP server as a child process and exchanges lines of JSON with it (MCP, "stdio").

The SDK has such a transport, but its lines have no bound. This transport reads lines of at most
`mcp.NAME.message_max_bytes` at a bounded pace. It also bounds the child's error output, which becomes
lines of our log. The child has its own session and process group, and when the transport has closed, all processes of
the group have ended.
"""

import os
import signal
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.abc
import structlog
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from threadcast.settings.mcp import Mcp
from threadcast.settings.values import revealed
from threadcast.tools.mcp.messages import read_message
from threadcast.tools.mcp.traffic import ServerBroke, Throttle, Traffic, lines

__all__ = ["stdio_transport"]

_log = structlog.get_logger()

FLUSH_SECONDS = 0.5
EXIT_SECONDS = 2.0
"""Seconds to send the last messages to the server, and seconds in which the server must exit after its input was
closed, and again after SIGTERM (MCP, "Shutdown")."""

POLL_SECONDS = 0.01

ERROR_LINES_PER_SECOND = 1.0
ERROR_LINES_BURST = 500.0
ERROR_LINE_MAX_CHARACTERS = 1_000
ERROR_BYTES_PER_SECOND = 1_048_576
ERROR_LINES_LAST = 20
ERROR_PAUSE_SECONDS = 0.2
"""Bounds of a server's error output in our log. 500 lines are logged at once (a stack trace of the SDK has 160) and
then one line a second. The last 20 lines before a pause have the same bounds again, which makes 180 MB a day at worst.
Other lines are read and dropped. A server that writes more bytes a second waits."""

_GONE = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)


@asynccontextmanager
async def stdio_transport(name: str, server: Mcp, traffic: Traffic) -> AsyncGenerator[TransportStreams]:
    """Start the server and connect to it.

    Raises:
        OSError: the program cannot be started.
    """
    process = await anyio.open_process(
        [server.command, *server.args],
        env={**get_default_environment(), **revealed(server.env)},
        start_new_session=True,
    )
    # No await between the start and the task group: a cancellation in between would leave the process behind.
    to_us, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_server, from_us = anyio.create_memory_object_stream[SessionMessage](0)
    written = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, process, to_us, traffic)
        tasks.start_soon(_write, process, from_us, to_us, written)
        tasks.start_soon(_log_errors, name, process)
        tasks.start_soon(_watch_exit, process, to_us, traffic)
        try:
            yield from_server, to_server
        finally:
            with anyio.CancelScope(shield=True):  # every wait in it is bounded
                from_server.close()
                to_server.close()
                with anyio.move_on_after(FLUSH_SECONDS):
                    await written.wait()
                await _stop(process)
                for stream in (to_us, from_us):
                    stream.close()
            tasks.cancel_scope.cancel()


async def _read(process: Process, to_us: MemoryObjectSendStream[SessionMessage | Exception], traffic: Traffic) -> None:
    assert process.stdout is not None
    unreadable = 0
    try:
        async with to_us:
            async for line in lines(_pieces(process.stdout), traffic.message_max_bytes):
                message = await read_message(await traffic.take(line))
                if message is not None:
                    await to_us.send(message)
                elif line.strip():
                    unreadable += 1
                    if unreadable & (unreadable - 1) == 0:  # the first, second, fourth, … line
                        _log.warning("mcp.unreadable", server=traffic.name, lines=unreadable)
            if await _has_ended(process, FLUSH_SECONDS) and process.returncode is not None:
                traffic.exited(process.returncode)
    except OverflowError:
        _signal_group(process, signal.SIGKILL)  # a server would continue to send the same line
        traffic.too_long()
    except (*_GONE, ServerBroke):
        pass
    finally:
        await _discard(process.stdout)


async def _pieces(stream: ByteReceiveStream) -> AsyncIterator[bytes]:
    with suppress(*_GONE):
        while True:
            yield await stream.receive()


async def _discard(stream: ByteReceiveStream) -> None:
    """Read the rest of the output, so that a server that is told to end is not blocked by a full pipe. The reading ends
    when `_stop` has closed the pipe."""
    with anyio.CancelScope(shield=True), suppress(*_GONE):
        while True:
            await stream.receive()
            await anyio.sleep(0.001)  # then a server with endless output takes little time


async def _write(
    process: Process,
    from_us: MemoryObjectReceiveStream[SessionMessage],
    to_us: MemoryObjectSendStream[SessionMessage | Exception],
    written: anyio.Event,
) -> None:
    assert process.stdin is not None
    try:
        async with from_us:
            async for message in from_us:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send(text.encode(errors="replace") + b"\n")
    except _GONE:
        to_us.close()  # the server may still run, but would never answer
    finally:
        written.set()


async def _watch_exit(
    process: Process, to_us: MemoryObjectSendStream[SessionMessage | Exception], traffic: Traffic
) -> None:
    """End the connection soon after the process has ended, even if a descendant holds its output open."""
    while process.returncode is None:  # noqa: ASYNC110 (as in `_has_ended`)
        await anyio.sleep(EXIT_SECONDS / 2)
    await anyio.sleep(EXIT_SECONDS / 2)  # for the last messages
    traffic.exited(process.returncode)
    to_us.close()


class _ErrorLog:
    """Logs lines of a server's error output within bounds. Once a longer output pauses, its last lines are logged too,
    because the end of a stack trace contains its reason."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pace, self._last_pace = Throttle(ERROR_LINES_BURST), Throttle(ERROR_LINES_BURST)
        self._last: deque[bytes] = deque(maxlen=ERROR_LINES_LAST)
        self._dropped = 0

    @property
    def is_behind(self) -> bool:
        return bool(self._last)

    def add(self, line: bytes) -> None:
        if not self._last and self._pace.admits(1 / ERROR_LINES_PER_SECOND):
            self._log(line)
            return
        self._dropped += len(self._last) == ERROR_LINES_LAST
        self._last.append(line)

    def pause(self) -> None:
        """Log the last lines."""
        if self._last_pace.admits(len(self._last) / ERROR_LINES_PER_SECOND):
            for line in self._last:
                self._log(line)
        else:
            self._dropped += len(self._last)
        self._last.clear()

    def _log(self, line: bytes) -> None:
        text = line[: 4 * ERROR_LINE_MAX_CHARACTERS].decode(errors="replace")[:ERROR_LINE_MAX_CHARACTERS]
        dropped = {"dropped": self._dropped} if self._dropped else {}
        _log.info("mcp.stderr", server=self._name, line=text.rstrip(), **dropped)
        self._dropped = 0


async def _log_errors(name: str, process: Process) -> None:
    """Log the server's error output, within bounds."""
    assert process.stderr is not None
    reading, errors = Throttle(), _ErrorLog(name)
    held = b""
    with suppress(*_GONE):
        while True:
            with anyio.move_on_after(ERROR_PAUSE_SECONDS if errors.is_behind else None) as waiting:
                piece = await process.stderr.receive()
            if waiting.cancelled_caught:
                errors.pause()
                continue
            await anyio.sleep(reading.late_seconds(len(piece) / ERROR_BYTES_PER_SECOND))
            *complete, held = (held + piece).split(b"\n")
            held = held[:ERROR_LINE_MAX_CHARACTERS]
            for line in complete:
                if line.strip():
                    errors.add(line)
    errors.pause()


async def _stop(process: Process) -> None:
    """End the process and its descendants: close its input, wait, SIGTERM, wait, SIGKILL."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with suppress(*_GONE):
        await process.stdin.aclose()
    if not await _has_ended(process, EXIT_SECONDS):
        _signal_group(process, signal.SIGTERM)
        await _has_ended(process, EXIT_SECONDS)
    _signal_group(process, signal.SIGKILL)  # descendants may outlive the process
    if not await _has_ended(process, EXIT_SECONDS):
        _log.warning("mcp.left_behind", pid=process.pid)
    for pipe in (process.stdout, process.stderr):
        with suppress(*_GONE):
            await pipe.aclose()
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:  # a descendant outside of the group may hold a pipe open
        with suppress(OSError):
            transport.close()


async def _has_ended(process: Process, seconds: float) -> bool:
    """Return whether the process ends in time. `Process.wait` would also wait until its pipes are closed, and a
    descendant may hold them open."""
    with anyio.move_on_after(seconds):
        while process.returncode is None:  # noqa: ASYNC110 (`Process.wait` waits for more, see above)
            await anyio.sleep(POLL_SECONDS)
    return process.returncode is not None


def _signal_group(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
