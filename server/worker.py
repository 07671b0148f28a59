"""The worker half: store, providers, tools, actors; opened and closed in order.

A process stops in the order of its promises: it takes no new chats, brings its actors to a safe point and gives their
chats back, then tells its streams, which have seen all of that, to come back elsewhere, then closes the store. A second
signal ends it at once; a crash is no worse than that.
"""

import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial

import anyio
import structlog

from server.actor.host import Host
from server.actor.workplace import Workplace
from server.assembly import Furniture, furnish, open_store, reasons_of, rhythm_of, traces_of
from server.lag import watched_lag
from server.probes import probed
from server.process import Seat, Startup, run_process, stop_requested
from server.readiness import Readiness
from server.relay.vault import Vault
from server.settings import Settings
from server.sockets import inherited, listening
from server.store.port import Store
from server.telemetry import Metrics
from server.tools.runner import ToolRunner

__all__ = ["hosting", "worker"]

_log = structlog.get_logger()


def worker(settings: Settings, seat: Seat | None = None) -> int:
    """`threadcast worker`: run actors until told to stop. Returns the exit status."""
    return run_process(settings, partial(_work, seat=seat), seat)


async def _work(settings: Settings, startup: Startup, seat: Seat | None) -> None:
    metrics, readiness = Metrics(), Readiness()
    furniture = furnish(settings)
    async with (
        stop_requested(startup, readiness.drain, settings.limits) as stop,
        watched_lag(metrics),
        probed(_probes_listener(settings, seat), readiness, metrics),
        furniture.providers.listing(),
        open_store(settings, readiness.wait) as (store, _),
        furniture.mcp.running(at_once=True),
        hosting(settings, store, furniture, metrics) as host,
    ):
        readiness.open(store)
        startup.say_ready(f"threadcast worker {host.name} is ready (process {os.getpid()})")
        await stop.wait()


def _probes_listener(settings: Settings, seat: Seat | None) -> AbstractContextManager[socket.socket] | None:
    """Metrics and health of a worker, where `server.metrics_port` says; one of several is given a socket of its own."""
    if seat is not None:
        return None if seat.probes_fd is None else inherited(seat.probes_fd)
    port = settings.server.metrics_port
    return listening(settings.server.host, port, "server.metrics_port") if port else None


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
        reasons=reasons_of(settings),
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
