"""The background processes of one worker: started, read, ended, and none left over.

It knows no chat and no log: who starts a process is told once how it ended. Each runs under a guard
(`process_child.py`) in a session of its own, so that ending it ends all that it started, and so that a worker killed
with -9 leaves nothing behind. The rule: what a process prints is read for as long as it runs, and of it only the end is
kept.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import structlog

from protocol.errors import ToolFailed
from server.forks import close_in_children
from server.tools.processes import ProcessView

__all__ = ["ENDED_KEPT", "OUTPUT_MAX_BYTES", "POOL_MAX", "ProcessPool"]

POOL_MAX = 64
"""Processes of a worker at once, each with a guard of some 8 MB beside it."""

OUTPUT_MAX_BYTES = 64_000
"""Of what a process printed, the end; read by models, which pay for each of it."""

ENDED_KEPT = 256
"""Processes whose output can still be read after their end, the newest: 16 MB at the most."""

KILL_GRACE_SECONDS = 0.4
"""From SIGTERM to SIGKILL: a worker that drains has a second for everything (DESIGN §4.6)."""

LAST_WORDS_SECONDS = 0.2
"""For what lies in the pipe of a process that has ended."""

GONE_SECONDS = 1.0
"""From SIGKILL to the end. The kernel takes microseconds, unless the process sleeps in a driver or on a dead network
disk: then nobody can end it, and a worker must not wait for it."""

REAP_PAUSE_SECONDS = 0.005

ENVIRONMENT = ("PATH", "HOME", "LANG", "TMPDIR")
"""What a process sees of the worker's environment, in which keys of providers lie."""

_log = structlog.get_logger()

_GUARD = Path(__file__).with_name("process_child.py")

Key: TypeAlias = tuple[str, str]
"""Chat and process id: nobody reads or ends the processes of another chat."""

OnEnd: TypeAlias = Callable[[ProcessView], None]


class _Running:
    """One process. `life` is our end of the pipe whose closing kills it."""

    def __init__(self, key: Key, guard: "subprocess.Popen[bytes]", life: int, on_end: OnEnd) -> None:
        self.key = key
        self.guard = guard
        self.on_end = on_end
        self.life = life
        self.output = bytearray()
        self.is_killed = False
        self.over = asyncio.Event()

    def add(self, printed: bytes) -> None:
        self.output += printed
        if len(self.output) > 2 * OUTPUT_MAX_BYTES:
            del self.output[:-OUTPUT_MAX_BYTES]

    def view(self, status: str, exit_code: int | None) -> ProcessView:
        text = bytes(self.output[-OUTPUT_MAX_BYTES:]).decode(errors="replace")
        return ProcessView(process_id=self.key[1], status=status, exit_code=exit_code, output=text)

    def let_go(self) -> None:
        """Close our end of its pipe."""
        life, self.life = self.life, -1
        os.close(life)

    def signal(self, number: signal.Signals) -> None:
        """To the whole group. The guard is its leader and is not waited for before it is over, so the id is its own."""
        if not self.over.is_set():
            with suppress(ProcessLookupError):
                os.killpg(self.guard.pid, number)


class ProcessPool:
    """`aclose` ends all of them."""

    def __init__(self, *, pool_max: int = POOL_MAX) -> None:
        self._pool_max = pool_max
        self._running: dict[Key, _Running] = {}
        self._ended: OrderedDict[Key, ProcessView] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        # Else a guard would learn of our death only when the child is gone, too.
        self._forget = close_in_children(lambda: [running.life for running in self._running.values()])

    @property
    def has_room(self) -> bool:
        return len(self._running) < self._pool_max

    def runs(self, key: Key) -> bool:
        return key in self._running

    async def start(self, key: Key, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], on_end: OnEnd) -> None:
        """Start it. `on_end` hears of its end once, in the loop's thread.

        Raises:
            ToolFailed: as many run as may, or there is nothing to run.
        """
        if not self.has_room:
            raise ToolFailed(f"This server runs {self._pool_max} processes already; try again when one has ended.")
        if not argv or not all(argv[:1]) or any("\0" in each for each in argv):
            raise ToolFailed("A process needs a program to run.")
        clean = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        life, ours = os.pipe()
        report, theirs = os.pipe()
        try:
            # From the loop's own thread and at once: a guard is a small interpreter, and a fork takes a millisecond.
            guard = subprocess.Popen(  # noqa: ASYNC220 - see above
                [sys.executable, "-I", "-S", str(_GUARD), str(life), str(theirs), *argv],
                cwd=cwd,
                env={**clean, **env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(life, theirs),
                start_new_session=True,
            )
        except (OSError, ValueError) as wrong:
            os.close(ours)
            os.close(report)
            raise ToolFailed(f"The process could not be started: {wrong}.") from wrong
        finally:
            os.close(life)
            os.close(theirs)
        running = self._running[key] = _Running(key, guard, ours, on_end)
        task = asyncio.create_task(self._watch(running, report), name=f"process {key[1]}")
        self._tasks.add(task)  # owned by the pool; `aclose` waits for it
        task.add_done_callback(self._tasks.discard)

    def read(self, key: Key) -> ProcessView | None:
        """None when it was never here, or is no longer held."""
        running = self._running.get(key)
        return running.view("running", None) if running is not None else self._ended.get(key)

    async def kill(self, key: Key) -> None:
        """SIGTERM, then SIGKILL; returns when it is gone, or cannot be ended: then it is left behind. One that does not
        run is gone already."""
        running = self._running.get(key)
        if running is None:
            return
        running.is_killed = True
        running.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(KILL_GRACE_SECONDS):
                await running.over.wait()
        except TimeoutError:
            running.signal(signal.SIGKILL)
            try:
                async with asyncio.timeout(GONE_SECONDS):
                    await running.over.wait()
            except TimeoutError:
                _log.error("process.left_behind", pid=running.guard.pid, process_id=key[1])

    async def aclose(self) -> None:
        """End them all, at once; what cannot be ended is left behind."""
        await asyncio.gather(*(self.kill(key) for key in list(self._running)))
        if self._tasks:
            _, watching = await asyncio.wait(self._tasks, timeout=GONE_SECONDS)
            for task in watching:
                task.cancel()
            if watching:  # they close their pipes, and wait for nothing more
                await asyncio.wait(watching)
        self._forget()

    async def _watch(self, running: _Running, report: int) -> None:
        """Read what it prints until its guard is gone, then say how it ended."""
        loop = asyncio.get_running_loop()
        assert running.guard.stdout is not None
        printed, reported, told = asyncio.Event(), asyncio.Event(), bytearray()
        out = running.guard.stdout.fileno()
        for descriptor, take, ended in ((out, running.add, printed), (report, told.extend, reported)):
            os.set_blocking(descriptor, False)
            loop.add_reader(descriptor, _drain, loop, descriptor, take, ended)
        try:
            await reported.wait()  # closed with the guard
        except asyncio.CancelledError:  # it is left behind
            for descriptor in (out, report):
                loop.remove_reader(descriptor)
            running.guard.stdout.close()
            os.close(report)
            running.let_go()
            raise
        # A guard that ended by itself has taken its group along; one that a signal ended has not.
        running.signal(signal.SIGKILL)
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await printed.wait()
        except TimeoutError:  # something left the group and holds the pipe still
            loop.remove_reader(out)
        while running.guard.poll() is None:  # noqa: ASYNC110 - it ends in this moment; it has closed its pipe
            await asyncio.sleep(REAP_PAUSE_SECONDS)
        running.over.set()
        running.guard.stdout.close()
        os.close(report)
        running.let_go()
        del self._running[running.key]
        view = _ended(running, told.decode(errors="replace").strip())
        self._ended[running.key] = view
        while len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)
        running.on_end(view)


def _drain(
    loop: asyncio.AbstractEventLoop, descriptor: int, take: Callable[[bytes], object], ended: asyncio.Event
) -> None:
    """A reader of the loop: take what is there; at the end of it, stop."""
    try:
        data = os.read(descriptor, 65_536)
    except BlockingIOError:
        return
    if data:
        take(data)
        return
    loop.remove_reader(descriptor)
    ended.set()


def _ended(running: _Running, word: str) -> ProcessView:
    """`word` is the guard's: an exit code, `!` and a reason, or nothing when it was killed itself."""
    if word.startswith("!"):
        running.add(f"it could not be started: {word[1:]}".encode())
        return running.view("failed", None)
    code = int(word) if word.lstrip("-").isdigit() else None
    if running.is_killed or code is None:
        return running.view("killed", code)
    return running.view("completed" if code == 0 else "failed", code)
