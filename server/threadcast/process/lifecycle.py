"""The life cycle of every server process: start, report of readiness, and stop.

The web process, the worker and the supervisor use it. An error that prevents a start is one sentence on standard error,
never a traceback.
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

from threadcast.base.hiding import hide_process
from threadcast.base.memory import return_large_blocks
from threadcast.base.redaction import Redactor
from threadcast.base.telemetry import configure_logging
from threadcast.http.imports import collect_calmly
from threadcast.process.ending import LEFTOVERS_SECONDS, end_leftovers, end_now, ending_by_force
from threadcast.settings import Limits, Settings
from threadcast.settings.secrets import secrets_of
from threadcast_protocol.wire.errors import ThreadcastError

__all__ = ["ProcessSlot", "Startup", "run_process", "stop_requested"]

STOP_SPARE_SECONDS = 20.0
"""Seconds for closing all resources: the last answers of HTTP (4 s), and a private store that syncs to a slow disk (10
s)."""

_log = structlog.get_logger()


class ProcessSlot(msgspec.Struct, frozen=True):
    """The resources that the supervisor passes to one of several processes. Standard input is the lifeline: the end of
    standard input tells the process to stop, even if the supervisor has died."""

    number: int
    """The slot's number, from 1; a replacement process has the number of its predecessor."""

    word_fd: int
    """The descriptor of the readiness report: when the process is ready, it writes one line to this descriptor and
    closes it."""

    listener_fd: int | None = None
    """The socket at which a web process accepts connections."""

    probes_fd: int | None = None
    """The socket at which the process serves only /livez, /readyz and /metrics."""

    replaces: bool = False
    """Whether another process accepts connections at the same socket until this process is ready."""


class Startup:
    """Reports that a process is ready; errors before this report are errors of the start."""

    def __init__(self, slot: ProcessSlot | None = None) -> None:
        self.is_over = False
        self.slot = slot

    def say_ready(self, line: str) -> None:
        """Report readiness to the parent. Call it when all resources are open."""
        self.is_over = True
        # Existing objects are exempt from collection: scanning them repeatedly took a tenth of the CPU of a busy
        # process.
        gc.freeze()
        if self.slot is None:
            print(line, flush=True)
            return
        with suppress(BrokenPipeError):  # the supervisor has ended, and this process ends soon
            os.write(self.slot.word_fd, line.encode())
        os.close(self.slot.word_fd)


def run_process(
    settings: Settings, main: Callable[[Settings, Startup], Awaitable[None]], slot: ProcessSlot | None = None
) -> int:
    """Run `main` on uvloop; returns the exit status: 0 when it was told to stop, else 1.

    An error during the start is one sentence on standard error. A later error is logged: the server's own errors as a
    sentence, and all other errors, which are bugs, with a traceback. If threads or tasks of `main` still run at the
    end, such as a hanging tool, the process ends here and the call does not return.

    Raises:
        KeyboardInterrupt: Ctrl-C before a signal handler was installed.
    """
    hide_process()
    return_large_blocks()
    collect_calmly()
    configure_logging(settings.server.log_format, settings.server.log_level, redactor=Redactor(secrets_of(settings)))
    if sys.__stderr__ is not None and not faulthandler.is_enabled():
        faulthandler.enable(sys.__stderr__)  # prints the stack after a crash of native code
    if slot is not None:
        structlog.contextvars.bind_contextvars(process=slot.number)
    startup = Startup(slot)
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
            except BaseException as wrong:  # the boundary of the process: every error is reported
                _tell(wrong, startup)
            finally:
                # All resources are closed. The event loop now cancels remaining tasks and waits for its executor.
                why = "a task or a thread of a tool does not end"
                ending.enter_context(ending_by_force(LEFTOVERS_SECONDS, lambda: status, why))()

        try:
            anyio.run(live, backend_options={"use_uvloop": True})
        except BaseException as wrong:  # in asyncio, `sys.exit()` in any task ends the loop
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
    """Return the errors inside nested exception groups."""
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
    """Yield an event that SIGINT, SIGTERM or the end of the slot's lifeline sets. Enter the block before opening
    resources, so that no signal comes too early. `told` is called when the event is set. A starting process is
    cancelled (`cancels_start`), since it may be waiting for its store. A second signal calls `at_once` and ends the
    process. A process that has not stopped `STOP_SPARE_SECONDS` after the time in `limits` ends with status 1."""
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
        # Python's own handler runs between two instructions of the main thread, so a second signal also ends a process
        # whose event loop is blocked.
        nonlocal asked_count
        asked_count += 1
        if asked_count > 1:
            at_once()
            end_now(128 + number)
        limit()  # called here, because a blocked event loop does not run `begin`
        loop.call_soon_threadsafe(begin, signal.Signals(number).name)

    async def hold_on(lifeline: int) -> None:
        await anyio.wait_readable(lifeline)  # no data is sent, so only the lifeline's end makes it readable
        begin("lifeline")

    with ending_by_force(within_seconds, lambda: 1, f"it did not stop within {within_seconds:g} s") as limit:
        handlers = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            async with anyio.create_task_group() as tasks:
                if startup.slot is not None:
                    tasks.start_soon(hold_on, sys.stdin.fileno())
                yield stop
                tasks.cancel_scope.cancel()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
