"""Several processes from one command, `threadcast web --processes N`: started, watched, replaced, stopped together.

Each is the same program with a seat (`process.py`), started anew and not forked, so that none inherits a running loop.
The listening sockets are made here, one for each, and lent: connections to a process that died wait for the next one in
its place, and none is refused while one takes over from another. What processes say to clients is not known here. The
rule: a process is told to stop by the end of its lifeline alone, so none outlives its supervisor, and a signal that
reaches all of them at once is never taken for a second one.
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

from protocol.codec import encode
from protocol.errors import Failed
from server.process import Seat, Startup, run_process, stop_requested
from server.settings import Settings
from server.sockets import SharedPort, listening

__all__ = ["supervise"]

_Half: TypeAlias = Literal["web", "worker"]

PAUSES_SECONDS = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Before a process is started again, by how often it died in a row: one death costs its readers no pause, and a program
that cannot live costs the machine little. Whoever dies once more ends all."""

STEADY_SECONDS = 60.0
"""A process that lived this long before it died starts the count of deaths anew."""

START_SECONDS = 60.0
"""For a process that takes over from another one, which serves on until then."""

STOP_SPARE_SECONDS = 25.0
"""Over what `limits` give a process for its end; then it is killed. 5 s more than a process gives itself
(`process.STOP_SPARE_SECONDS`), so that one that is stuck ends by itself first, and its log says why."""

LINE_MAX_BYTES = 4_096
"""Of what a process says when it is ready; one write to a pipe, so it comes in one piece."""

_log = structlog.get_logger()


def supervise(settings: Settings, half: _Half, command: Sequence[str], count: int) -> int:
    """Run `command`, which is given `--seat`, in `count` processes until told to stop. Returns the exit status.

    A process that dies is started again; one that dies again and again ends all. SIGHUP replaces them one by one.
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
                probes = stack.enter_context(listening(server.host, at, "server.metrics_port", is_lent=True))
            crew.places.append(
                _Place(f"{half} process {number}", partial(_start, lives, command, number), port, probes)
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
    """All places of a command. `stop_seconds`: how long a process may take to end."""

    def __init__(self, stop_seconds: float) -> None:
        self.places: list[_Place] = []
        self._stop_seconds = stop_seconds

    async def work(self, startup: Startup, hangups: AsyncIterator[signal.Signals], stop: Callable[[], None]) -> None:
        """Raises Failed when one cannot be started, or dies again and again."""
        has_terminal = sys.stdin is not None and sys.stdin.isatty()  # asked now: one that was closed is none any more
        async with anyio.create_task_group() as tasks:
            for place in self.places:
                tasks.start_soon(place.fill)
        startup.say_ready(f"{self.places[0].said}, {len(self.places)} processes")
        async with anyio.create_task_group() as tasks:
            for place in self.places:
                tasks.start_soon(place.keep, partial(self._others_live, place))
            async for _ in hangups:
                if has_terminal:  # it was closed, which is no wish for new processes
                    stop()
                else:
                    await self._replace()

    def _others_live(self, place: "_Place") -> bool:
        return any(other.is_ready for other in self.places if other is not place)

    async def _replace(self) -> None:
        """One after another; all are at work at any moment. The first that fails ends it: the others would fail too."""
        for place in self.places:
            trouble = await place.replace(self._stop_seconds)
            if trouble is not None:
                _log.error("processes.not_replaced", kept=place.name, why=trouble)
                return
        _log.info("processes.replaced", count=len(self.places))

    async def stop(self) -> None:
        """All at once. Raises Failed when one had to be killed."""
        for place in self.places:
            place.release()
        with anyio.move_on_after(self._stop_seconds) as patience:
            for place in self.places:
                await place.ended()
        if patience.cancelled_caught:
            self.kill()
            for place in self.places:
                await place.ended()
            raise Failed(f"a process did not stop within {self._stop_seconds:g} s and was killed; see the log")

    def kill(self) -> None:
        for place in self.places:
            place.kill()


class _Child:
    """A running process. `said`: its word when it was ready, '' when it ended before."""

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
            await anyio.wait_readable(self._word_fd)  # or its end, which comes with the end of the process
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
        """End its lifeline: it finishes what it has, and ends."""
        if self._lifeline_fd is not None:
            os.close(self._lifeline_fd)
            self._lifeline_fd = None

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # it has just ended by itself
            self.process.kill()

    @property
    def fate(self) -> str:
        """How it ended, once it has."""
        status = self.process.returncode or 0
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"


async def _why_unready(child: _Child) -> str:
    """In words; it is ended in any case."""
    if child.ready.is_set():  # it has closed its end of the pipe, as a process does that ends
        with anyio.move_on_after(STOP_SPARE_SECONDS):
            await child.ended.wait()
            return f"process {child.process.pid} ended with {child.fate} before it was ready; what it said stands above"
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
    """A process with these sockets, in a session of its own: Ctrl-C of a terminal reaches the supervisor alone."""
    lifeline, lifeline_fd = os.pipe()
    word_fd, word = os.pipe()
    try:
        lent = [each.fileno() for each in (listener, probes) if each is not None]
        listener_fd, probes_fd = (None if each is None else each.fileno() for each in (listener, probes))
        seat = Seat(number, word, listener_fd, probes_fd, replaces)
        process = await anyio.open_process(
            [*command, "--seat", encode(seat).decode()],
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


class _Place:
    """What is one process at a time, under one number and behind one listening socket; two while one takes over."""

    def __init__(self, name: str, start: _Start, port: SharedPort | None, probes: socket.socket | None) -> None:
        self.name = name
        self._start = start
        self._port = port
        self._probes = probes
        self._listener: socket.socket | None = None
        self._children: list[_Child] = []  # all that may run; the last one is the one that counts
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
        """The first process, ready. Raises Failed."""
        child = await self._add()
        await child.ready.wait()
        if not child.said:
            await child.ended.wait()
            raise Failed(f"{self.name} did not start ({child.fate}); what it said stands above")

    async def keep(self, others_live: Callable[[], bool]) -> None:
        """Start who has died again. Raises Failed when that is of no use. While others live, one that does not even
        start, as without the store, is tried for as long as it takes: they must not end for it."""
        while True:
            child = self._children[-1]
            await child.ended.wait()
            async with self._changing:
                if child is self._children[-1]:  # nobody took over meanwhile
                    await self._start_again(child, others_live)

    async def replace(self, stop_seconds: float) -> str | None:
        """Another process takes over; why not, when it does not become ready, and then nothing has changed."""
        async with self._changing:
            old = self._children[-1]
            if old.ended.is_set():
                return None  # it is started again anyway
            new = await self._start(self._listener, self._probes, True)
            self._children.insert(0, new)
            with anyio.move_on_after(START_SECONDS):
                await new.ready.wait()
            if not new.said:
                why = await _why_unready(new)
                self._children.remove(new)
                return why
            self._children = [old, new]
        old.release()  # outside of the lock: if the new one dies while the old one finishes, another is started at once
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
                f"{self.name} died {self._deaths} times in a row, at last with {child.fate}; the log says what it did "
                "before. Start it alone, without --processes, to see whether it can live"
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
        if pause_seconds and self._listener is not None:  # nobody shall wait that long: the others are there
            self._listener.close()
            self._listener = None
        await anyio.sleep(pause_seconds)
        await self._add()
