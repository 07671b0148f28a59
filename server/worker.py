"""The worker half: store, providers, tools, actors; opened and closed in order. Also what both halves share of
starting, signals and stopping.

A process stops in the order of its promises: it takes no new chats, brings its actors to a safe point and gives their
chats back, then tells its streams, which have seen all of that, to come back elsewhere, then closes the store. A second
signal ends it at once; a crash is no worse than that.
"""

import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import structlog

from protocol.errors import ThreadcastError
from server.actor.host import Host
from server.actor.workplace import Workplace
from server.assembly import Furniture, furnish, open_store, rhythm_of, traces_of
from server.http import listening, serving
from server.lag import watched_lag
from server.probes import Probes
from server.readiness import Readiness
from server.redaction import Redactor, secrets_of
from server.relay.vault import Vault
from server.settings import Settings
from server.store.port import Store
from server.telemetry import Metrics, configure_logging
from server.tools.runner import ToolRunner

__all__ = ["Startup", "hosting", "run_process", "stop_requested", "worker"]

_log = structlog.get_logger()


class Startup:
    """What a process says when it is ready; until then its errors are those of a start."""

    def __init__(self) -> None:
        self.is_over = False

    def say_ready(self, line: str) -> None:
        """Tell whoever started us. Call it when everything is open."""
        self.is_over = True
        print(line, flush=True)


def worker(settings: Settings) -> int:
    """`threadcast worker`: run actors until told to stop. Returns the exit status."""
    return run_process(settings, _work)


async def _work(settings: Settings, startup: Startup) -> None:
    metrics, readiness = Metrics(), Readiness()
    furniture = furnish(settings)
    async with (
        stop_requested(readiness) as stop,
        watched_lag(metrics),
        _probed(settings, readiness, metrics),
        open_store(settings) as (store, _),
        furniture.mcp.running(at_once=True),
        hosting(settings, store, furniture, metrics) as host,
    ):
        readiness.open(store)
        startup.say_ready(f"threadcast worker {host.name} is ready (process {os.getpid()})")
        await stop.wait()


@asynccontextmanager
async def _probed(settings: Settings, readiness: Readiness, metrics: Metrics) -> AsyncIterator[None]:
    """Metrics and health of a worker, where `server.metrics_port` says; first opened, last closed."""
    if not settings.server.metrics_port:
        yield
        return
    with listening(settings.server.host, settings.server.metrics_port, "server.metrics_port") as listener:
        async with serving(listener, Probes(readiness, metrics)):
            yield


def run_process(settings: Settings, main: Callable[[Settings, Startup], Awaitable[None]]) -> int:
    """Run `main` on uvloop where there is one; returns the exit status.

    What keeps it from starting is one sentence on standard error, and so is an error of ours later on. Any other error
    of a process that had started is a mistake somewhere, and is logged with its traceback.
    """
    configure_logging(settings.server.log_format, settings.server.log_level, redactor=Redactor(secrets_of(settings)))
    startup = Startup()
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
async def stop_requested(readiness: Readiness) -> AsyncIterator[anyio.Event]:
    """An event that SIGINT or SIGTERM sets; entered before anything opens, so that no signal finds us without it.
    `/readyz` says so from that moment. Whoever sends a second one does not want to wait: the process ends at once."""
    stop = anyio.Event()
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_listen, signals, stop, readiness)
            yield stop
            tasks.cancel_scope.cancel()


async def _listen(signals: AsyncIterator[signal.Signals], stop: anyio.Event, readiness: Readiness) -> None:
    async for number in signals:
        if stop.is_set():
            os._exit(128 + number)
        _log.info("process.stopping", signal=signal.Signals(number).name)
        readiness.drain()
        stop.set()


@asynccontextmanager
async def hosting(
    settings: Settings, store: Store, furniture: Furniture, metrics: Metrics, vault: Vault | None = None
) -> AsyncIterator[Host]:
    """Actors at work for as long as it is entered; then drained. `vault` is that of the web half in this process."""
    runner = ToolRunner()
    data_dir = settings.store.data_path / "files"
    traces = traces_of(settings, store, metrics)
    place = Workplace(
        worker=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
        store=store,
        models=furniture.providers,
        profiles=furniture.profiles,
        runner=runner,
        metrics=metrics,
        data_dir=str(data_dir),
        title_model=settings.models.title,
        traces=traces,
        answer_seconds=settings.limits.answer_timeout_seconds,
        authorizations=vault or Vault(store),
    )
    host = Host(place, rhythm_of(settings))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.run)
        if traces is not None:
            tasks.start_soon(traces.run)
        tasks.start_soon(furniture.providers.warm_up)  # the first answer must not wait for an SDK
        try:
            yield host
        finally:
            with anyio.CancelScope(shield=True):
                left = await host.drain()
                if left:
                    _log.warning("worker.drained_late", chats_left=left)
                await place.processes.aclose()
                if traces is not None:
                    await traces.aclose()
                await runner.aclose()
                await furniture.providers.aclose()
                await furniture.http.aclose()
            tasks.cancel_scope.cancel()
