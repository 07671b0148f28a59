"""What every process of ours has in common: how it starts, what it says when it is ready, how it is told to stop.

Used by `app.py`, `worker.py` and `supervisor.py`, and by nobody below them. It knows no room of the house. The rule:
whatever keeps a process from starting is one sentence on standard error, never a traceback.
"""

import asyncio
import faulthandler
import gc
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from types import FrameType

import anyio
import msgspec
import structlog

from protocol.errors import ThreadcastError
from server.ending import LEFTOVERS_SECONDS, end_leftovers, end_now, ending_by_force
from server.light import collect_calmly
from server.redaction import Redactor, secrets_of
from server.settings import Limits, Settings
from server.telemetry import configure_logging

__all__ = ["Seat", "Startup", "run_process", "stop_requested"]

STOP_SPARE_SECONDS = 20.0
"""For closing what is open: the last answers of HTTP (4 s), and a private store that syncs to a slow disk (10 s)."""

_log = structlog.get_logger()


class Seat(msgspec.Struct, frozen=True):
    """What a process is given by the supervisor that starts it as one of several. Standard input is its lifeline: it
    ends when the process shall stop, and when the supervisor is gone, however it went."""

    number: int
    """From 1; a process that takes the place of another has its number."""

    word_fd: int
    """Where it says that it is ready, in a line, and closes it."""

    listener_fd: int | None = None
    """Where a web process accepts connections."""

    probes_fd: int | None = None
    """Where it answers /livez, /readyz and /metrics alone."""

    replaces: bool = False
    """Whether another process accepts connections at the same socket until this one is ready."""


class Startup:
    """What a process says when it is ready; until then its errors are those of a start."""

    def __init__(self, seat: Seat | None = None) -> None:
        self.is_over = False
        self.seat = seat

    def say_ready(self, line: str) -> None:
        """Tell whoever started us. Call it when everything is open."""
        self.is_over = True
        # What is here stays: a tenth of the CPU of a busy process went into looking through it again and again.
        gc.freeze()
        if self.seat is None:
            print(line, flush=True)
            return
        with suppress(BrokenPipeError):  # the supervisor is gone, and so are we, soon
            os.write(self.seat.word_fd, line.encode())
        os.close(self.seat.word_fd)


def run_process(
    settings: Settings, main: Callable[[Settings, Startup], Awaitable[None]], seat: Seat | None = None
) -> int:
    """Run `main` on uvloop where there is one; returns the exit status: 0 when it was told to stop, else 1.

    What keeps it from starting is one sentence on standard error. What ends it later is logged: an error of ours as a
    sentence, any other, which is a mistake somewhere, with its traceback. When something that `main` started goes on
    all the same, such as the thread of a tool that hangs, the process ends here and this does not return.

    Raises:
        KeyboardInterrupt: Ctrl-C before anything listened to it.
    """
    collect_calmly()
    configure_logging(settings.server.log_format, settings.server.log_level, redactor=Redactor(secrets_of(settings)))
    if sys.__stderr__ is not None and not faulthandler.is_enabled():
        faulthandler.enable(sys.__stderr__)  # a crash of native code says where it was
    if seat is not None:
        structlog.contextvars.bind_contextvars(process=seat.number)
    startup = Startup(seat)
    before = set(threading.enumerate())
    status = 1
    with ExitStack() as ending:

        async def live() -> None:
            nonlocal status
            try:
                await main(settings, startup)
                status = 0
            except asyncio.CancelledError:
                raise
            except BaseException as wrong:  # the boundary of the process
                _tell(wrong, startup)
            finally:
                # All is closed, in order. The event loop now cancels what is left and waits for its executor.
                why = "a task or a thread of a tool does not end"
                ending.enter_context(ending_by_force(LEFTOVERS_SECONDS, lambda: status, why))()

        try:
            anyio.run(live, backend_options={"use_uvloop": sys.platform != "win32"})
        except BaseException as wrong:  # past `live`, out of another task: asyncio lets `sys.exit()` in it end the loop
            if isinstance(wrong, KeyboardInterrupt) and not startup.is_over:
                raise
            _tell(wrong, startup)
            status = 1
    end_leftovers(before, status)
    return status


def _tell(wrong: BaseException, startup: Startup) -> None:
    for trouble in _leaves(wrong):
        if not startup.is_over and isinstance(trouble, ThreadcastError | ValueError | OSError):
            print(f"threadcast: {trouble}", file=sys.stderr)
        elif isinstance(trouble, ThreadcastError):
            _log.error("process.failed", error=trouble.message)
        else:
            _log.critical("process.failed", exc_info=trouble)


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors themselves, out of the groups that task groups wrap around them."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _leaves(each)]


@asynccontextmanager
async def stop_requested(
    startup: Startup,
    told: Callable[[], None],
    limits: Limits,
    *,
    cancels_start: bool = True,
    at_once: Callable[[], None] = lambda: None,
) -> AsyncIterator[anyio.Event]:
    """Yield an event that SIGINT, SIGTERM or the end of a seat's lifeline sets. Enter the block before anything opens,
    so that no signal comes too early. `told` is called when the event is set. A process that has not started yet is
    cancelled (`cancels_start`), since it may be waiting for its store. A second signal ends the process at once, after
    `at_once`. A process that has not stopped `STOP_SPARE_SECONDS` after the time that `limits` give it ends with status
    1."""
    within_seconds = limits.retire_seconds + limits.drain_seconds + STOP_SPARE_SECONDS
    stop = anyio.Event()
    loop = asyncio.get_running_loop()
    asked_count = 0

    def begin(asked_by: str) -> None:
        if stop.is_set():
            return
        _log.info("process.stopping", signal=asked_by)
        told()
        stop.set()
        limit()
        if cancels_start and not startup.is_over:
            tasks.cancel_scope.cancel()

    def hear(number: int, _: FrameType | None) -> None:
        # A handler of Python's own, which runs between two instructions of whatever holds the main thread: a second
        # signal ends a process whose event loop is blocked, too.
        nonlocal asked_count
        asked_count += 1
        if asked_count > 1:
            at_once()
            end_now(128 + number)
        limit()  # here and not in `begin`, which a blocked event loop does not come to
        loop.call_soon_threadsafe(begin, signal.Signals(number).name)

    async def hold_on(lifeline: int) -> None:
        await anyio.wait_readable(lifeline)  # nothing is ever written to it, so this is its end
        begin("lifeline")

    with ending_by_force(within_seconds, lambda: 1, f"it did not stop within {within_seconds:g} s") as limit:
        handlers = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            async with anyio.create_task_group() as tasks:
                if startup.seat is not None:
                    tasks.start_soon(hold_on, sys.stdin.fileno())
                yield stop
                tasks.cancel_scope.cancel()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
