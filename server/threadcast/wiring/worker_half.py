"""The worker half: the host of actors and its dependencies, opened and closed in order."""

import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager

import anyio
import structlog

from threadcast.actor.host import Host
from threadcast.actor.lease_timings import LeaseTimings
from threadcast.actor.run_slots import RunSlots
from threadcast.actor.worker_context import WorkerContext
from threadcast.base.telemetry import Metrics
from threadcast.credentials import CredentialCache
from threadcast.http.sockets import inherited, listening
from threadcast.process.lifecycle import ProcessSlot
from threadcast.settings import Settings
from threadcast.store.ports import Store
from threadcast.tools.process_pool import ProcessPool
from threadcast.tools.runner import ToolRunner
from threadcast.wiring.components import Components
from threadcast.wiring.tools import programs_user_in
from threadcast.wiring.values import credential_cache_of, reasons_of, traces_of

__all__ = ["probes_listener", "worker_half"]

_log = structlog.get_logger()


def probes_listener(settings: Settings, slot: ProcessSlot | None) -> AbstractContextManager[socket.socket] | None:
    """Return the listener for a worker's metrics and health, at `server.metrics_port`; each of several processes has
    its own socket. None: no listener."""
    if slot is not None:
        return None if slot.probes_fd is None else inherited(slot.probes_fd)
    port = settings.server.metrics_port
    return listening(settings.server.metrics_host, port, "server.metrics_port") if port else None


@asynccontextmanager
async def worker_half(
    settings: Settings,
    store: Store,
    components: Components,
    metrics: Metrics,
    credential_cache: CredentialCache | None = None,
) -> AsyncIterator[Host]:
    """Run actors, and yield their host. At the end the host is drained. `credential_cache` is the cache of the web half
    in this process."""
    runner = ToolRunner()
    data_dir = settings.store.data_path / "files"
    traces = traces_of(settings, store, metrics)
    context = WorkerContext(
        worker=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
        store=store,
        models=components.providers,
        profiles=components.profiles,
        runner=runner,
        metrics=metrics,
        data_dir=str(data_dir),
        title_model=settings.models.title,
        traces=traces,
        limits=settings.limits,
        slots=RunSlots(settings.limits.runs_per_principal, metrics),
        reasons=reasons_of(settings),
        processes=ProcessPool(user=programs_user_in(settings)),
        authorizations=credential_cache or credential_cache_of(settings, store),
    )
    host = Host(context, LeaseTimings.of_lease(settings.limits.lease_seconds))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.run)
        if traces is not None:
            tasks.start_soon(traces.run)
        tasks.start_soon(components.providers.warm_up)  # imports SDKs before the first answer needs them
        try:
            yield host
        finally:
            with anyio.CancelScope(shield=True):
                left = await host.drain()
                if left:
                    _log.warning("worker.drained_late", chats_left=left)
                await context.processes.aclose()
                if traces is not None:
                    await traces.aclose()
                await runner.aclose()
                await components.providers.aclose()
                await components.http.aclose()
            tasks.cancel_scope.cancel()
