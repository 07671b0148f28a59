"""The web half: hub, feeds and the edge that requests use, opened and closed in order."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager

import anyio

from threadcast.api.answers import Answers
from threadcast.api.bodies import Bodies
from threadcast.api.edge import Edge
from threadcast.api.storage import StorageBounds
from threadcast.base.telemetry import Metrics
from threadcast.credentials import CredentialCache
from threadcast.fanout.feeds import Feeds
from threadcast.fanout.hub import Hub
from threadcast.http.readiness import Readiness
from threadcast.http.server import HttpServer
from threadcast.http.sockets import inherited, listening
from threadcast.process.lifecycle import ProcessSlot, Startup
from threadcast.settings import Settings
from threadcast.store.ports import Store
from threadcast.wiring.components import Components
from threadcast.wiring.tools import worker_limits_of
from threadcast.wiring.values import authenticator_of, quotas_of

__all__ = ["local_url", "say_ready", "web_half", "web_listener"]


def local_url(listener: socket.socket) -> str:
    """Return the server's URL for programs on this machine; the loopback address if the server listens on all
    addresses."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def web_listener(settings: Settings, slot: ProcessSlot | None) -> AbstractContextManager[socket.socket]:
    if slot is not None and slot.listener_fd is not None:
        return inherited(slot.listener_fd)
    return listening(settings.server.host, settings.server.port)


@asynccontextmanager
async def web_half(
    settings: Settings,
    store: Store,
    components: Components,
    metrics: Metrics,
    readiness: Readiness,
    server: HttpServer,
    credential_cache: CredentialCache,
    slot: ProcessSlot | None,
) -> AsyncIterator[Edge]:
    """Open the parts that requests need, and yield the edge. At the end, streams are told to reconnect, and other
    requests finish."""
    limits = settings.limits
    hub = Hub(store, metrics, limits, shows_names=bool(settings.auth.tokens))
    feeds = Feeds(store)
    edge = Edge(
        store=store,
        hub=hub,
        feeds=feeds,
        auth=authenticator_of(settings),
        metrics=metrics,
        readiness=readiness,
        profiles=components.profiles,
        providers=components.providers,
        worker_limits=worker_limits_of(components.tools.values()),
        mcp=components.mcp,
        quotas=quotas_of(settings, store, metrics),
        storage=StorageBounds(store, metrics, limits.storage_per_principal_bytes, limits.chats_per_principal),
        bodies=Bodies(metrics, limits.bodies_per_principal_bytes, limits.bodies_max_bytes),
        imports=Bodies(metrics, limits.import_max_bytes, 2 * limits.import_max_bytes, "imports"),
        answers=Answers(metrics, limits.answers_per_principal_bytes, limits.answers_max_bytes),
        limits=limits,
        credential_cache=credential_cache if components.forwards_authorization else None,
        shares_port=slot is not None,
        frame_origins=settings.server.frame_origins,
        endpoints=components.endpoints,
        doors=settings.doors,
        public_url=settings.server.public_url,
    )
    async with hub.running(), feeds.running(), anyio.create_task_group() as tasks:
        if edge.credential_cache is not None:
            tasks.start_soon(credential_cache.answer)
            tasks.start_soon(credential_cache.sweep)
        try:
            yield edge
        finally:
            with anyio.CancelScope(shield=True):
                server.close_soon()
                await hub.close_streams()
                await server.until_ended()
            tasks.cancel_scope.cancel()


def say_ready(
    settings: Settings,
    components: Components,
    listener: socket.socket,
    announce: Callable[[str], None],
    startup: Startup,
) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}"
    announce(url)
    where = (
        "memory only: all data is lost at the end" if settings.store.memory else f"data in {settings.store.data_dir}"
    )
    if settings.store.url is not None:
        where = "store from store.url"
    model = f"model {components.profiles.default_model}" if components.profiles.default_model else "no default model"
    startup.say_ready(f"threadcast listens on {url}  ({model}, {where})")
