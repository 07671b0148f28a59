"""What every process of ours has in common: how it starts, what it says when it is ready, how it is told to stop.

Used by `app.py`, `worker.py` and `supervisor.py`, and by nobody below them. It knows no room of the house. The rule:
whatever keeps a process from starting is one sentence on standard error, never a traceback.
"""

import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
import structlog

from protocol.errors import ThreadcastError
from server.light import collect_calmly
from server.redaction import Redactor, secrets_of
from server.settings import Settings
from server.telemetry import configure_logging

__all__ = ["Seat", "Startup", "run_process", "stop_requested"]

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


class Startup:
    """What a process says when it is ready; until then its errors are those of a start."""

    def __init__(self, seat: Seat | None = None) -> None:
        self.is_over = False
        self._seat = seat

    def say_ready(self, line: str) -> None:
        """Tell whoever started us. Call it when everything is open."""
        self.is_over = True
        # What is here stays: a tenth of the CPU of a busy process went into looking through it again and again.
        gc.freeze()
        if self._seat is None:
            print(line, flush=True)
            return
        with suppress(BrokenPipeError):  # the supervisor is gone, and so are we, soon
            os.write(self._seat.word_fd, line.encode())
        os.close(self._seat.word_fd)


def run_process(
    settings: Settings, main: Callable[[Settings, Startup], Awaitable[None]], seat: Seat | None = None
) -> int:
    """Run `main` on uvloop where there is one; returns the exit status.

    What keeps it from starting is one sentence on standard error, and so is an error of ours later on. Any other error
    of a process that had started is a mistake somewhere, and is logged with its traceback.
    """
    collect_calmly()
    configure_logging(settings.server.log_format, settings.server.log_level, redactor=Redactor(secrets_of(settings)))
    if seat is not None:
        structlog.contextvars.bind_contextvars(process=seat.number)
    startup = Startup(seat)
    troubles: list[BaseException] = []
    try:
        anyio.run(main, settings, startup, backend_options={"use_uvloop": sys.platform != "win32"})
    except* Exception as group:  # the boundary of the process
        troubles = _leaves(group)
    for trouble in troubles:
        is_expected = isinstance(trouble, ThreadcastError) or (
            not startup.is_over and isinstance(trouble, ValueError | OSError)
        )
        if is_expected:
            print(f"threadcast: {trouble}", file=sys.stderr)
        else:
            _log.critical("process.failed", exc_info=trouble)
    return 1 if troubles else 0


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The errors themselves, out of the groups that task groups wrap around them."""
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found


@asynccontextmanager
async def stop_requested(
    told: Callable[[], None], seat: Seat | None = None, *, at_once: Callable[[], None] = lambda: None
) -> AsyncIterator[anyio.Event]:
    """An event that SIGINT, SIGTERM or the end of a seat's lifeline sets; entered before anything opens, so that none
    of them finds us without it. `told` is called at that moment. Whoever sends a second signal does not want to wait:
    the process ends at once, after `at_once`."""
    stop = anyio.Event()

    def begin(asked_by: str) -> None:
        if not stop.is_set():
            _log.info("process.stopping", signal=asked_by)
            told()
            stop.set()

    async def listen(signals: AsyncIterator[signal.Signals]) -> None:
        is_first = True
        async for number in signals:
            if not is_first:
                at_once()
                os._exit(128 + number)
            is_first = False
            begin(signal.Signals(number).name)

    async def hold_on() -> None:
        await anyio.wait_readable(sys.stdin.fileno())  # nothing is ever written to it, so this is its end
        begin("lifeline")

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen, signals)
            if seat is not None:
                tasks.start_soon(hold_on)
            yield stop
            tasks.cancel_scope.cancel()
