"""The web half: settings, store, relays, routes; opened and closed in order. `serve` adds the worker half to it.

The port is open first: until everything else is, `/readyz` says that the process is starting and requests are told to
come back, so a start that waits for its store looks like one. One of several accepts nobody before it is ready, since
others of them do. When it is told to stop, `/readyz` says so at once.
"""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from functools import partial

import anyio

from server.api.edge import Edge
from server.api.routes import build_app
from server.assembly import Furniture, authenticator_of, furnish, open_store, quotas_of
from server.backlog import watched_backlog
from server.companions import running
from server.http import HttpServer, allow_open_files, serving
from server.lag import watched_lag
from server.probes import Door, Probes, probed
from server.process import Seat, Startup, run_process, stop_requested
from server.readiness import Readiness
from server.relay.feeds import Feeds
from server.relay.hub import Hub
from server.relay.vault import Vault
from server.settings import Settings
from server.sockets import inherited, listening
from server.store.port import Store
from server.telemetry import Metrics
from server.worker import hosting

__all__ = ["serve", "web"]


def serve(settings: Settings) -> int:
    """`threadcast serve`: web and actors in one process, with an embedded store unless one is given."""
    return run_process(settings, partial(_run, has_worker=True))


def web(settings: Settings, seat: Seat | None = None) -> int:
    """`threadcast web`: the edge alone; workers run elsewhere. `seat`: it is one of several on one port."""
    return run_process(settings, partial(_run, seat=seat, has_worker=False), seat)


async def _run(settings: Settings, startup: Startup, *, seat: Seat | None = None, has_worker: bool) -> None:
    metrics, readiness = Metrics(), Readiness()
    furniture = furnish(settings)
    async with AsyncExitStack() as stack:
        stop = await stack.enter_async_context(stop_requested(startup, readiness.drain, settings.limits))
        await stack.enter_async_context(watched_lag(metrics))
        allow_open_files(settings.limits.streams_max)
        if seat is not None and seat.probes_fd is not None:
            await stack.enter_async_context(probed(inherited(seat.probes_fd), readiness, metrics))
        listener = stack.enter_context(_listener(settings, seat))
        door = Door(Probes(readiness))
        ready = anyio.Event()
        server = await stack.enter_async_context(serving(listener, door, None if seat is None else ready))
        await stack.enter_async_context(furniture.providers.listing())

        def wait(trouble: str) -> None:
            readiness.wait(trouble)
            if seat is None or not seat.replaces:
                ready.set()  # all others of this port wait, too: probes, at least, are answered

        store, announce = await stack.enter_async_context(open_store(settings, wait))
        await stack.enter_async_context(furniture.mcp.running(at_once=has_worker))
        await stack.enter_async_context(watched_backlog(store, metrics))
        vault = Vault(store)
        edge = await stack.enter_async_context(
            _edge(settings, store, furniture, metrics, readiness, server, vault, seat)
        )
        if has_worker:  # drained before streams end
            await stack.enter_async_context(hosting(settings, store, furniture, metrics, vault))
        door.open(
            build_app(
                edge,
                cors_origins=settings.server.cors_origins,
                checks_host=not settings.auth.tokens,
                pages=settings.server.pages,
            )
        )
        readiness.open(store)
        ready.set()
        _say_ready(settings, furniture, listener, announce, startup)
        async with running(furniture.companions if has_worker else [], _local_url(listener)):
            await stop.wait()
            await anyio.sleep(settings.limits.retire_seconds)


def _local_url(listener: socket.socket) -> str:
    """The server's address for programs on this machine: of a wildcard address, loopback."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _listener(settings: Settings, seat: Seat | None) -> AbstractContextManager[socket.socket]:
    if seat is not None and seat.listener_fd is not None:
        return inherited(seat.listener_fd)
    return listening(settings.server.host, settings.server.port)


@asynccontextmanager
async def _edge(
    settings: Settings,
    store: Store,
    furniture: Furniture,
    metrics: Metrics,
    readiness: Readiness,
    server: HttpServer,
    vault: Vault,
    seat: Seat | None,
) -> AsyncIterator[Edge]:
    """What requests need, for as long as it is entered; then streams are told to come back, and the rest finishes."""
    limits = settings.limits
    hub = Hub(
        store,
        metrics,
        heartbeat_seconds=limits.heartbeat_seconds,
        streams_per_principal=limits.streams_per_principal,
        streams_max=limits.streams_max,
        shows_names=bool(settings.auth.tokens),
    )
    feeds = Feeds(store)
    edge = Edge(
        store=store,
        hub=hub,
        feeds=feeds,
        auth=authenticator_of(settings),
        metrics=metrics,
        readiness=readiness,
        profiles=furniture.profiles,
        providers=furniture.providers,
        tools=list(furniture.tools.values()),
        mcp=furniture.mcp,
        quotas=quotas_of(settings, store, metrics),
        body_max_bytes=limits.body_max_bytes,
        import_max_bytes=limits.import_max_bytes,
        import_messages_max_count=limits.import_max_messages,
        buffer_max_bytes=limits.subscriber_buffer_bytes,
        stall_seconds=limits.subscriber_stall_seconds,
        body_timeout_seconds=limits.body_timeout_seconds,
        keeps_traces=limits.trace_hours > 0,
        vault=vault if furniture.forwards_authorization else None,
        shares_port=seat is not None,
        frame_origins=settings.server.frame_origins,
        endpoints=furniture.endpoints,
    )
    async with hub.running(), feeds.running(), anyio.create_task_group() as tasks:
        if edge.vault is not None:
            tasks.start_soon(vault.answer)
            tasks.start_soon(vault.sweep)
        try:
            yield edge
        finally:
            with anyio.CancelScope(shield=True):
                server.close_soon()
                await hub.close_streams()
                await server.until_ended()
            tasks.cancel_scope.cancel()


def _say_ready(
    settings: Settings,
    furniture: Furniture,
    listener: socket.socket,
    announce: Callable[[str], None],
    startup: Startup,
) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}"
    announce(url)
    where = (
        "memory only: everything is gone at the end" if settings.store.memory else f"data in {settings.store.data_dir}"
    )
    if settings.store.url is not None:
        where = "store from store.url"
    model = f"model {furniture.profiles.default_model}" if furniture.profiles.default_model else "no default model"
    startup.say_ready(f"threadcast listens on {url}  ({model}, {where})")
