"""Runs a coding agent as a child process and exchanges lines of JSON with it (ACP, "Transports", stdio).

The child runs under a guard (`tools/process_child.py`) in its own session, so that none of its processes outlives the
worker, not even after kill -9. The length and the pace of the child's lines are bounded.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

import threadcast.tools.process_pool as process_pool
from threadcast.base.forks import close_in_children
from threadcast.base.json_bounds import JsonBounds
from threadcast.tools.mcp.traffic import Throttle, lines
from threadcast.tools.programs_user import ProgramsUser
from threadcast_protocol.wire.errors import TooLarge

__all__ = ["LINE_MAX_BYTES", "VALUES_MAX", "Child", "ChildBroke"]

LINE_MAX_BYTES = 16_777_216
"""Maximum bytes of a line of an agent. A file that the agent writes through us has at most 10 MB, plus escapes."""

VALUES_MAX = 100_000
"""Maximum JSON values in one line: twice the default of `mcp.NAME.message_max_values`."""

LINES_PER_SECOND = 2_000.0
BYTES_PER_SECOND = 8_388_608.0
"""The maximum average pace of an agent's output, and also of its error output. A model writes 200 tokens a second; an
agent that writes faster than this pace waits at its pipe."""

PIECE_BYTES = 65_536

ERROR_LINES_PER_SECOND = 1.0
ERROR_LINE_MAX_CHARACTERS = 1_000

TERMINATE_SECONDS = 0.4
KILL_SECONDS = 1.0
"""Seconds from SIGTERM to SIGKILL, and seconds to wait for the end after SIGKILL, the same as for background
processes."""

REASON_MAX_BYTES = 1_000

_GUARD = Path(process_pool.__file__).with_name("process_child.py")

_log = structlog.get_logger()


class ChildBroke(Exception):
    """The agent's program has ended or exceeded a bound, as the message tells."""


class Child:
    """One running program. `start` starts the program, and `stop` ends the program and all its descendants."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, life: int, report: int) -> None:
        self._name = name
        self._process = process
        self._life = life
        self._report = report
        self._pace = Throttle()
        self._error_pace = Throttle()
        self._logged_pace = Throttle(500.0)
        self._forget = close_in_children(lambda: [self._life])
        self._errors = asyncio.create_task(self._log_errors(), name=f"acp {name} stderr")  # ended by `stop`

    @classmethod
    async def start(
        cls, name: str, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], user: ProgramsUser | None
    ) -> "Child":
        """Start the program in the directory `cwd`, with only the variables `env`.

        Raises:
            ChildBroke: the guard of the program cannot be started.
        """
        variables = dict(env)
        if user is not None:
            argv, variables = user.command(argv), {**variables, **user.environment(env)}
        life, ours = os.pipe()
        report, theirs = os.pipe()
        os.set_blocking(report, False)
        try:
            process = await asyncio.create_subprocess_exec(
                *[sys.executable, "-I", "-S", str(_GUARD), str(life), str(theirs), *argv],
                cwd=cwd,
                env=variables,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(life, theirs),
                start_new_session=True,
            )
        except BaseException as wrong:
            os.close(ours)
            os.close(report)
            if isinstance(wrong, OSError | ValueError):
                raise ChildBroke(f"The agent's program could not be started: {wrong}") from wrong
            raise
        finally:
            os.close(life)
            os.close(theirs)
        return cls(name, process, ours, report)

    @property
    def is_running(self) -> bool:
        return self._life >= 0 and self._process.returncode is None

    async def write(self, line: bytes) -> None:
        """Send a line. Raises ChildBroke: the program has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
            await self._process.stdin.drain()
        except (OSError, RuntimeError) as wrong:
            raise ChildBroke(self.ending()) from wrong

    async def read(self) -> AsyncIterator[bytes]:
        """Yield the lines of the program.

        Raises:
            ChildBroke: the program has ended, or a line exceeds a bound.
        """
        try:
            async for line in lines(self._pieces(), LINE_MAX_BYTES):
                bounds = JsonBounds(VALUES_MAX)
                if not bounds.is_within(line):
                    for _ in bounds.check(bytearray(line)):
                        await asyncio.sleep(0)
                pause = self._pace.late_seconds(1 / LINES_PER_SECOND + len(line) / BYTES_PER_SECOND)
                if pause:
                    await asyncio.sleep(pause)
                if line.strip():
                    yield line
        except TooLarge:
            raise ChildBroke(f"The agent sent a line with more than {VALUES_MAX:,} values.") from None
        except OverflowError:
            raise ChildBroke(f"The agent sent a line of more than {LINE_MAX_BYTES:,} bytes.") from None
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), TERMINATE_SECONDS)
        raise ChildBroke(self.ending())

    def ending(self) -> str:
        """Return a sentence about the end of the program."""
        said = b""
        if self._report >= 0:
            with suppress(OSError):
                said = os.read(self._report, REASON_MAX_BYTES)
        word = said.decode(errors="replace").strip()
        if word.startswith("!"):
            return f"The agent's program could not be started: {word[1:]}."
        return f"The agent's program has ended{f' with the exit status {word}' if word else ''}."

    async def stop(self) -> None:
        """End the program and its descendants: SIGTERM, then SIGKILL. Takes 2 s at most."""
        if self._life < 0:
            return
        life, self._life = self._life, -1
        self._forget()
        try:
            if not await self._has_ended(0):
                self._signal(signal.SIGTERM)
                await self._has_ended(TERMINATE_SECONDS)
        finally:
            os.close(life)  # the guard kills the group
            self._signal(signal.SIGKILL)
            self._errors.cancel()
            await self._has_ended(KILL_SECONDS)
            os.close(self._report)
            self._report = -1
            if (transport := getattr(self._process, "_transport", None)) is not None:
                transport.close()  # a descendant that left the group may hold a pipe open

    async def _has_ended(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._process.returncode is None:  # noqa: ASYNC110 - `wait` would also wait for the pipes
                    await asyncio.sleep(0.005)
        return self._process.returncode is not None

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the program's process group. The guard leads the group, and while the guard is not reaped,
        the id of the group is not reused."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    async def _pieces(self) -> AsyncIterator[bytes]:
        assert self._process.stdout is not None
        while piece := await self._process.stdout.read(PIECE_BYTES):
            yield piece

    async def _log_errors(self) -> None:
        """Log the error output within bounds: 500 lines at once, and then one line a second."""
        assert self._process.stderr is not None
        held, dropped = b"", 0
        while piece := await self._process.stderr.read(PIECE_BYTES):
            *complete, held = (held + piece).split(b"\n")
            if pause := self._error_pace.late_seconds(len(complete) / LINES_PER_SECOND + len(piece) / BYTES_PER_SECOND):
                await asyncio.sleep(pause)
            held = held[:ERROR_LINE_MAX_CHARACTERS]
            for line in complete:
                if not self._logged_pace.admits(1 / ERROR_LINES_PER_SECOND):
                    dropped += 1
                    continue
                text = line.decode(errors="replace")[:ERROR_LINE_MAX_CHARACTERS].rstrip()
                _log.info("acp.stderr", agent=self._name, line=text, dropped=dropped)
                dropped = 0
