"""Starts, watches, replaces and stops the processes of `threadcast web --processes N`.

Each process is the same program with a slot (`lifecycle.ProcessSlot`), started as a new program and not forked, so that
it inherits no running loop. The supervisor opens one listening socket per process and keeps it: connections to a dead
process wait for its replacement, and no connection is refused during a takeover. Only the end of its lifeline tells a
process to stop. So no process outlives the supervisor, and a signal to the whole process group does not count twice.
"""

import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Literal, TypeAlias

import anyio
import structlog
from anyio.abc import Process, TaskGroup

from threadcast.http.sockets import SharedPort, listening
from threadcast.process.lifecycle import ProcessSlot, Startup, run_process, stop_requested
from threadcast.settings import Settings
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.errors import Failed

__all__ = ["supervise"]

_Half: TypeAlias = Literal["web", "worker"]

PAUSES_SECONDS = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Seconds before a process is started again, by the number of deaths in a row. The first restart is immediate; the
later pauses limit the cost of a program that dies at every start. One more death ends all processes."""

STEADY_SECONDS = 60.0
"""Seconds of running after which the count of deaths starts again from 0."""

START_SECONDS = 60.0
"""Seconds for a replacement process to become ready; its predecessor serves until then."""

STOP_SPARE_SECONDS = 25.0
"""Seconds beyond the stop time in `limits` after which a process is killed: 5 s more than a process gives itself
(`lifecycle.STOP_SPARE_SECONDS`), so that a stuck process first ends itself and logs the reason."""

LINE_MAX_BYTES = 4_096
"""Maximum bytes of a process's report of readiness; it is one write to a pipe, so it arrives whole."""

_log = structlog.get_logger()


def supervise(settings: Settings, half: _Half, command: Sequence[str], count: int) -> int:
    """Run `command` with `--seat` in `count` processes until told to stop. Returns the exit status.

    A process that dies is started again; if one process dies repeatedly, all processes are ended. SIGHUP replaces the
    processes one by one.
    """
    return run_process(settings, partial(_run, half=half, command=command, count=count))


async def _run(settings: Settings, startup: Startup, *, half: _Half, command: Sequence[str], count: int) -> None:
    limits, server = settings.limits, settings.server
    crew = _Crew(limits.retire_seconds + limits.drain_seconds + STOP_SPARE_SECONDS)
    async with AsyncExitStack() as stack:
        stop = await stack.enter_async_context(
            stop_requested(startup, lambda: None, limits, cancels_start=False, at_once=crew.kill)
        )
        hangups = stack.enter_context(anyio.open_signal_receiver(signal.SIGHUP))
        port = stack.enter_context(SharedPort(server.host, server.port)) if half == "web" else None
        lives = await stack.enter_async_context(anyio.create_task_group())
        for number in range(1, count + 1):
            probes = None
            if server.metrics_port:
                at = server.metrics_port + number - 1
                probes = stack.enter_context(listening(server.metrics_host, at, "server.metrics_port", is_lent=True))
            crew.members.append(
                _Member(f"{half} process {number}", partial(_start, lives, command, number), port, probes)
            )
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(crew.work, startup, hangups, stop.set)
                await stop.wait()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await crew.stop()


class _Crew:
    """The processes of a command. `stop_seconds` is the time that a process may take to end."""

    def __init__(self, stop_seconds: float) -> None:
        self.members: list[_Member] = []
        self._stop_seconds = stop_seconds

    async def work(self, startup: Startup, hangups: AsyncIterator[signal.Signals], stop: Callable[[], None]) -> None:
        """Run the processes until stopped. Raises Failed when a process cannot be started, or dies repeatedly."""
        has_terminal = sys.stdin is not None and sys.stdin.isatty()  # read now: False after the terminal has closed
        async with anyio.create_task_group() as tasks:
            for member in self.members:
                tasks.start_soon(member.fill)
        startup.say_ready(f"{self.members[0].said}, {len(self.members)} processes")
        async with anyio.create_task_group() as tasks:
            for member in self.members:
                tasks.start_soon(member.keep, partial(self._others_live, member))
            async for _ in hangups:
                if has_terminal:  # SIGHUP from a closed terminal does not request a replacement
                    stop()
                else:
                    await self._replace()

    def _others_live(self, member: "_Member") -> bool:
        return any(other.is_ready for other in self.members if other is not member)

    async def _replace(self) -> None:
        """Replace the processes one after another while all slots keep serving. The first failure ends the replacement,
        since the other replacements would fail, too."""
        for member in self.members:
            trouble = await member.replace(self._stop_seconds)
            if trouble is not None:
                _log.error("processes.not_replaced", kept=member.name, why=trouble)
                return
        _log.info("processes.replaced", count=len(self.members))

    async def stop(self) -> None:
        """Stop all processes concurrently. Raises Failed when a process had to be killed."""
        for member in self.members:
            member.release()
        with anyio.move_on_after(self._stop_seconds) as retry_policy:
            for member in self.members:
                await member.ended()
        if retry_policy.cancelled_caught:
            self.kill()
            for member in self.members:
                await member.ended()
            raise Failed(f"a process did not stop within {self._stop_seconds:g} s and was killed; see the log")

    def kill(self) -> None:
        for member in self.members:
            member.kill()


class _Child:
    """A running process. `said` is the process's report of readiness, '' if the process ended without a report."""

    def __init__(self, number: int, process: Process, lifeline_fd: int, word_fd: int) -> None:
        self.number = number
        self.process = process
        self.said = ""
        self.ready = anyio.Event()
        self.ended = anyio.Event()
        self.started_at = anyio.current_time()
        self._lifeline_fd: int | None = lifeline_fd
        self._word_fd = word_fd

    async def live(self) -> None:
        try:
            await anyio.wait_readable(self._word_fd)  # readable with the report, or at the end of the process
            self.said = os.read(self._word_fd, LINE_MAX_BYTES).decode()
        finally:
            os.close(self._word_fd)
        if self.said:
            _log.info("process.ready", number=self.number, pid=self.process.pid)
        self.ready.set()
        await self.process.wait()
        self.release()
        self.ended.set()

    def release(self) -> None:
        """End the process's lifeline, so that the process finishes its work and ends."""
        if self._lifeline_fd is not None:
            os.close(self._lifeline_fd)
            self._lifeline_fd = None

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # the process has just ended by itself
            self.process.kill()

    @property
    def fate(self) -> str:
        """Return how the process ended."""
        status = self.process.returncode or 0
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"


async def _why_unready(child: _Child) -> str:
    """Return the reason why the process did not become ready, and end it."""
    if child.ready.is_set():  # the process has closed its end of the pipe without a report, because it ends
        with anyio.move_on_after(STOP_SPARE_SECONDS):
            await child.ended.wait()
            return f"process {child.process.pid} ended with {child.fate} before it was ready; see its output above"
    child.kill()
    await child.ended.wait()
    return f"process {child.process.pid} was not ready within {START_SECONDS:g} s"


_Start: TypeAlias = Callable[[socket.socket | None, socket.socket | None, bool], "Awaitable[_Child]"]


async def _start(
    lives: TaskGroup,
    command: Sequence[str],
    number: int,
    listener: socket.socket | None,
    probes: socket.socket | None,
    replaces: bool,
) -> _Child:
    """Start a process with these sockets, in its own session: Ctrl-C in a terminal reaches the supervisor only."""
    lifeline, lifeline_fd = os.pipe()
    word_fd, word = os.pipe()
    try:
        lent = [each.fileno() for each in (listener, probes) if each is not None]
        listener_fd, probes_fd = (None if each is None else each.fileno() for each in (listener, probes))
        slot = ProcessSlot(number, word, listener_fd, probes_fd, replaces)
        process = await anyio.open_process(
            [*command, "--seat", encode(slot).decode()],
            stdin=lifeline,
            stdout=None,
            stderr=None,
            pass_fds=[word, *lent],
            start_new_session=True,
        )
    except BaseException:
        os.close(lifeline_fd)
        os.close(word_fd)
        raise
    finally:
        os.close(lifeline)
        os.close(word)
    _log.info("process.started", number=number, pid=process.pid)
    child = _Child(number, process, lifeline_fd, word_fd)
    lives.start_soon(child.live)
    return child


class _Member:
    """A slot: a number and a listening socket with one process at a time, or with two processes during a
    replacement."""

    def __init__(self, name: str, start: _Start, port: SharedPort | None, probes: socket.socket | None) -> None:
        self.name = name
        self._start = start
        self._port = port
        self._probes = probes
        self._listener: socket.socket | None = None
        self._children: list[_Child] = []  # all processes that may run; the last process is current
        self._deaths = 0
        self._changing = anyio.Lock()

    @property
    def said(self) -> str:
        return self._children[-1].said

    @property
    def is_ready(self) -> bool:
        child = self._children[-1]
        return bool(child.said) and not child.ended.is_set()

    async def fill(self) -> None:
        """Start the first process and wait until it is ready. Raises Failed."""
        child = await self._add()
        await child.ready.wait()
        if not child.said:
            await child.ended.wait()
            raise Failed(f"{self.name} did not start ({child.fate}); see its output above")

    async def keep(self, others_live: Callable[[], bool]) -> None:
        """Restart the process whenever it dies. Raises Failed after repeated deaths. As long as another process lives,
        a start that fails, for instance because the store is away, is repeated without limit: the server goes on with
        the processes that it has."""
        while True:
            child = self._children[-1]
            await child.ended.wait()
            async with self._changing:
                if child is self._children[-1]:  # no replacement has taken over
                    await self._start_again(child, others_live)

    async def replace(self, stop_seconds: float) -> str | None:
        """Replace the process. If the replacement does not become ready, the old process keeps running, and the reason
        is returned."""
        async with self._changing:
            old = self._children[-1]
            if old.ended.is_set():
                return None  # the process is started again in any case
            new = await self._start(self._listener, self._probes, True)
            self._children.insert(0, new)
            with anyio.move_on_after(START_SECONDS):
                await new.ready.wait()
            if not new.said:
                why = await _why_unready(new)
                self._children.remove(new)
                return why
            self._children = [old, new]
        old.release()  # outside the lock: if the new process dies meanwhile, another is started at once
        with anyio.move_on_after(stop_seconds):
            await old.ended.wait()
        old.kill()
        self._children = [child for child in self._children if child is not old]
        return None

    def release(self) -> None:
        for child in self._children:
            child.release()

    async def ended(self) -> None:
        for child in self._children:
            await child.ended.wait()

    def kill(self) -> None:
        for child in self._children:
            child.kill()

    async def _add(self) -> _Child:
        if self._port is not None and self._listener is None:
            self._listener = self._port.listener()
        child = await self._start(self._listener, self._probes, False)
        self._children = [*(each for each in self._children if not each.ended.is_set()), child]
        return child

    async def _start_again(self, child: _Child, others_live: Callable[[], bool]) -> None:
        lived_seconds = anyio.current_time() - child.started_at
        self._deaths = 1 if lived_seconds >= STEADY_SECONDS else self._deaths + 1
        if self._deaths > len(PAUSES_SECONDS) and (child.said or not others_live()):
            raise Failed(
                f"{self.name} died {self._deaths} times in a row, the last time with {child.fate}; the log shows what "
                "it did before. Start it alone, without --processes, to see whether it keeps running"
            )
        pause_seconds = PAUSES_SECONDS[min(self._deaths, len(PAUSES_SECONDS)) - 1]
        _log.error(
            "process.died",
            number=child.number,
            pid=child.process.pid,
            who=self.name,
            fate=child.fate,
            starts_in_seconds=pause_seconds,
        )
        if pause_seconds and self._listener is not None:  # the other processes accept connections meanwhile
            self._listener.close()
            self._listener = None
        await anyio.sleep(pause_seconds)
        await self._add()
