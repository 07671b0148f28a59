"""Starts, reads and ends the background processes of one worker, so that none outlives the worker.

The caller that starts a process gets one callback at its end. Each process runs under a guard (`process_child.py`) in
its own session, so that ending it ends all its descendants, and a worker killed with -9 leaves no process behind.
Output is read while the process runs, and only the end of the output is kept.
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

from threadcast.base.forks import close_in_children
from threadcast.tools.processes import ProcessView
from threadcast.tools.programs_user import ProgramsUser
from threadcast_protocol.wire.errors import ToolFailed

__all__ = ["ENDED_KEPT", "OUTPUT_MAX_BYTES", "POOL_MAX", "ProcessPool"]

POOL_MAX = 64
"""Maximum concurrent processes of a worker; each has a guard of some 8 MB."""

OUTPUT_MAX_BYTES = 64_000
"""Bytes kept from the end of a process's output; models read it and pay for each token."""

ENDED_KEPT = 256
"""Number of the newest ended processes whose output can still be read. Their output takes 16 MB at most."""

KILL_GRACE_SECONDS = 0.4
"""Seconds from SIGTERM to SIGKILL: a draining worker has one second for everything (DESIGN §4.6)."""

LAST_WORDS_SECONDS = 0.2
"""Seconds to read the rest of the output of an ended process from its pipe."""

GONE_SECONDS = 1.0
"""Seconds that the worker waits for the end of a process after SIGKILL. The kernel takes microseconds, unless the
process sleeps in a driver or on a dead network disk. Such a process cannot be ended, and the worker must not wait for
it."""

REAP_PAUSE_SECONDS = 0.005

ENVIRONMENT = ("PATH", "HOME", "LANG", "TMPDIR")
"""The environment variables that a process inherits; the worker's other variables include providers' keys."""

_log = structlog.get_logger()

_GUARD = Path(__file__).with_name("process_child.py")

Key: TypeAlias = tuple[str, str]
"""The ids of the chat and of the process, so that a chat cannot read or end the processes of another chat."""

OnEnd: TypeAlias = Callable[[ProcessView], None]


class _Running:
    """One process. `life` is our end of the guard's pipe; closing it kills the process."""

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
        """Close our end of the process's pipe."""
        life, self.life = self.life, -1
        os.close(life)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole process group. The guard leads the group and is reaped only in the step that sets
        `over`, so its id cannot be reused earlier."""
        if not self.over.is_set():
            with suppress(ProcessLookupError):
                os.killpg(self.guard.pid, number)


class ProcessPool:
    """The processes of a worker; `aclose` ends all of them."""

    def __init__(self, *, pool_max: int = POOL_MAX, user: ProgramsUser | None = None) -> None:
        """Create an empty pool. `user`: the user of the processes; None for the worker's own user."""
        self._pool_max = pool_max
        self._user = user
        self._running: dict[Key, _Running] = {}
        self._ended: OrderedDict[Key, ProcessView] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        # Forked children close the pipes. Otherwise a child would keep a pipe open, and the guard would not notice the
        # end of this worker.
        self._forget = close_in_children(lambda: [running.life for running in self._running.values()])

    @property
    def home(self) -> str:
        """Return the directory of processes that run as another user; '' if processes run as the worker's own user.
        Such processes may not write into the directory of Python tools, because a link there could make a tool write
        anywhere."""
        return "" if self._user is None else self._user.home

    @property
    def has_room(self) -> bool:
        return len(self._running) < self._pool_max

    def runs(self, key: Key) -> bool:
        return key in self._running

    async def start(self, key: Key, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], on_end: OnEnd) -> None:
        """Start a process. `on_end` is called once at the end of the process, in the loop's thread.

        Raises:
            ToolFailed: the maximum number of processes is already running, or the program is missing.
        """
        if not self.has_room:
            raise ToolFailed(f"This server runs {self._pool_max} processes already; try again when one has ended.")
        if not argv or not all(argv[:1]) or any("\0" in each for each in argv):
            raise ToolFailed("A process needs a program to run.")
        clean = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        if self._user is not None:
            argv, env = self._user.command(argv), self._user.environment(env)
        life, ours = os.pipe()
        report, theirs = os.pipe()
        try:
            # The guard is started in the loop's thread, because it is a small interpreter, whose fork takes a
            # millisecond.
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
        """Return the state of a process; None when the process is unknown or no longer held."""
        running = self._running.get(key)
        return running.view("running", None) if running is not None else self._ended.get(key)

    async def kill(self, key: Key) -> None:
        """Send SIGTERM, then SIGKILL. Returns when the process has ended, or when waiting is useless because it cannot
        be ended. Does nothing for a process that does not run."""
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
        """End all processes concurrently; processes that cannot be ended are left running."""
        await asyncio.gather(*(self.kill(key) for key in list(self._running)))
        if self._tasks:
            _, watching = await asyncio.wait(self._tasks, timeout=GONE_SECONDS)
            for task in watching:
                task.cancel()
            if watching:  # the watching tasks close their pipes and end
                await asyncio.wait(watching)
        self._forget()

    async def _watch(self, running: _Running, report: int) -> None:
        """Read the output until the guard has ended, then report the end."""
        loop = asyncio.get_running_loop()
        assert running.guard.stdout is not None
        printed, reported, told = asyncio.Event(), asyncio.Event(), bytearray()
        out = running.guard.stdout.fileno()
        for descriptor, take, ended in ((out, running.add, printed), (report, told.extend, reported)):
            os.set_blocking(descriptor, False)
            loop.add_reader(descriptor, _drain, loop, descriptor, take, ended)
        try:
            await reported.wait()  # the guard's end closes this pipe
        except asyncio.CancelledError:  # the process is left behind
            for descriptor in (out, report):
                loop.remove_reader(descriptor)
            running.guard.stdout.close()
            os.close(report)
            running.let_go()
            raise
        # A guard that exits by itself has killed its group; a guard that was ended by a signal has not.
        running.signal(signal.SIGKILL)
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await printed.wait()
        except TimeoutError:  # a descendant left the group and still holds the pipe
            loop.remove_reader(out)
        while running.guard.poll() is None:  # noqa: ASYNC110 - the guard has closed its pipe and ends within moments
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
    """Read the available output in a reader callback of the loop; remove the callback at the end of the output."""
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
    """Return the final state of the process. `word` is the guard's report: an exit code, `!` and a reason, or '' when
    the guard was killed."""
    if word.startswith("!"):
        running.add(f"the process could not be started: {word[1:]}".encode())
        return running.view("failed", None)
    code = int(word) if word.lstrip("-").isdigit() else None
    if running.is_killed or code is None:
        return running.view("killed", code)
    return running.view("completed" if code == 0 else "failed", code)
