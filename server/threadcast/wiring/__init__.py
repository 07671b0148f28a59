"""The composition root: builds the parts of a process, and opens and closes them in order. Read this file first.

    serve                       both halves in one process, with a private store unless one is configured
    web                         the web half: HTTP server, routes, hub with its relays, feeds
    worker                      the worker half: a host with one actor for each chat that it owns

    components.py               providers, tools, MCP servers and profiles, the same in all three
    web_half.py, worker_half.py the two halves
    store.py                    the store: Redis, or a private Valkey
    values.py and the others    settings in the form that each part takes

Parts are opened from top to bottom, in an `async with` or an `AsyncExitStack`, and closed in the reverse order. The
port of a web process is open first: until the rest is ready, `/readyz` reports that the process is starting, and other
requests are told to retry later. A process that shares its port with other processes accepts no connections until it is
ready, because the other processes answer in the meantime.

A process that is told to stop reports so in `/readyz` at once. A worker takes no new chats, brings its actors to a safe
point and releases their chats. Only then are streams told to reconnect, so that readers have seen everything that the
actors wrote. The store is closed last. A second signal ends the process at once, which has the same effect as a crash.
"""

import os
from contextlib import AsyncExitStack
from functools import partial

import anyio

from threadcast.base.telemetry import Metrics
from threadcast.companions import running
from threadcast.http.admission import LOOPBACK, Connections
from threadcast.http.probes import Probes, StartupGate, probed
from threadcast.http.readiness import Readiness
from threadcast.http.server import allow_open_files, serving
from threadcast.http.sockets import inherited
from threadcast.http.uvicorn_inside import report_misfit
from threadcast.process.backlog import watched_backlog
from threadcast.process.lifecycle import ProcessSlot, Startup, run_process, stop_requested
from threadcast.process.loop_lag import watched_lag
from threadcast.routes import build_app
from threadcast.settings import Settings
from threadcast.wiring.components import build_components
from threadcast.wiring.store import open_store
from threadcast.wiring.values import credential_cache_of
from threadcast.wiring.web_half import local_url, say_ready, web_half, web_listener
from threadcast.wiring.worker_half import probes_listener, worker_half

__all__ = ["serve", "web", "worker"]


def serve(settings: Settings) -> int:
    """`threadcast serve`: run web and actors in one process, with a private store unless one is configured. Returns the
    exit status."""
    return run_process(settings, partial(_run_web, has_worker=True))


def web(settings: Settings, slot: ProcessSlot | None = None) -> int:
    """`threadcast web`: run the web half alone, with workers in other processes. `slot` is set if several processes
    share the port. Returns the exit status."""
    return run_process(settings, partial(_run_web, slot=slot, has_worker=False), slot)


def worker(settings: Settings, slot: ProcessSlot | None = None) -> int:
    """`threadcast worker`: run actors until told to stop. Returns the exit status."""
    return run_process(settings, partial(_run_worker, slot=slot), slot)


async def _run_web(settings: Settings, startup: Startup, *, slot: ProcessSlot | None = None, has_worker: bool) -> None:
    metrics, readiness = Metrics(), Readiness()
    components = build_components(settings)
    async with AsyncExitStack() as stack:
        stop = await stack.enter_async_context(stop_requested(startup, readiness.drain, settings.limits))
        await stack.enter_async_context(watched_lag(metrics))
        report_misfit()
        connections = Connections(
            settings.limits,
            allow_open_files(settings.limits.connections_max),
            metrics,
            (*LOOPBACK, *settings.server.trusted_proxies),
        )
        if slot is not None and slot.probes_fd is not None:
            await stack.enter_async_context(probed(inherited(slot.probes_fd), readiness, metrics, settings.limits))
        listener = stack.enter_context(web_listener(settings, slot))
        gate = StartupGate(Probes(readiness))
        ready = anyio.Event()
        server = await stack.enter_async_context(serving(listener, gate, connections, None if slot is None else ready))
        await stack.enter_async_context(components.providers.listing())

        def wait(trouble: str) -> None:
            readiness.wait(trouble)
            if slot is None or not slot.replaces:
                ready.set()  # all processes of this port still wait; at least probes are now answered

        store, announce = await stack.enter_async_context(open_store(settings, wait))
        await stack.enter_async_context(components.mcp.running(at_once=has_worker))
        await stack.enter_async_context(watched_backlog(store, metrics, readiness))
        credential_cache = credential_cache_of(settings, store)
        edge = await stack.enter_async_context(
            web_half(settings, store, components, metrics, readiness, server, credential_cache, slot)
        )
        if has_worker:  # closed, and so drained, before streams end
            await stack.enter_async_context(worker_half(settings, store, components, metrics, credential_cache))
        gate.open(
            build_app(
                edge,
                cors_origins=settings.server.cors_origins,
                has_tokens=bool(settings.auth.tokens),
                public_url=settings.server.public_url,
                pages=settings.server.pages,
                trusted_proxies=settings.server.trusted_proxies,
            )
        )
        readiness.open(store)
        ready.set()
        say_ready(settings, components, listener, announce, startup)
        async with running(components.companions if has_worker else [], local_url(listener)):
            await stop.wait()
            await anyio.sleep(settings.limits.retire_seconds)


async def _run_worker(settings: Settings, startup: Startup, slot: ProcessSlot | None) -> None:
    metrics, readiness = Metrics(), Readiness()
    components = build_components(settings)
    async with (
        stop_requested(startup, readiness.drain, settings.limits) as stop,
        watched_lag(metrics),
        probed(probes_listener(settings, slot), readiness, metrics, settings.limits),
        components.providers.listing(),
        open_store(settings, readiness.wait) as (store, _),
        components.mcp.running(at_once=True),
        worker_half(settings, store, components, metrics) as host,
    ):
        readiness.open(store)
        startup.say_ready(f"threadcast worker {host.name} is ready (process {os.getpid()})")
        await stop.wait()
