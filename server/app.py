"""The web half: settings, store, relays, routes; opened and closed in order. `serve` adds the worker half to it.

The socket is ours, so that the bytes the kernel keeps for a reader who does not read are few, and the port is known
before anybody is told. uvicorn speaks HTTP; its signal handling is left out, because streams must be told to come
back before it waits for them to end.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import anyio
import structlog
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from protocol.errors import Conflict
from server.api.edge import Edge
from server.api.opening import ABORT
from server.api.routes import build_app
from server.assembly import Furniture, authenticator_of, furnish, open_store, quotas_of
from server.relay.feeds import Feeds
from server.relay.hub import Hub
from server.relay.vault import Vault
from server.settings import Settings
from server.store.port import Store
from server.telemetry import Metrics
from server.worker import Startup, hosting, run_process, stop_requested

__all__ = ["serve", "web"]

_log = structlog.get_logger()

SEND_BUFFER_BYTES = 65_536
"""What the kernel may keep for a reader who does not read (DESIGN §5)."""

BACKLOG = 2_048
"""Connections that may wait to be accepted: a reconnect herd after a restart."""

CLOSE_SECONDS = 3
"""How long uvicorn waits for the last answers."""


def serve(settings: Settings) -> int:
    """`threadcast serve`: web and actors in one process, with an embedded store unless one is given."""
    return run_process(settings, _serve)


def web(settings: Settings) -> int:
    """`threadcast web`: the edge alone; workers run elsewhere."""
    return run_process(settings, _web)


async def _serve(settings: Settings, startup: Startup) -> None:
    metrics = Metrics()
    furniture = furnish(settings)
    async with AsyncExitStack() as stack:
        stop = await stack.enter_async_context(stop_requested())
        listener = stack.enter_context(_listening(settings.server.host, settings.server.port))
        store, announce = await stack.enter_async_context(open_store(settings))
        await stack.enter_async_context(furniture.mcp.running(at_once=True))
        vault = Vault(store)
        await stack.enter_async_context(_edge(settings, store, furniture, metrics, listener, vault))
        await stack.enter_async_context(
            hosting(settings, store, furniture, metrics, vault)
        )  # drained before streams end
        _say_ready(settings, furniture, listener, announce, startup)
        await stop.wait()


async def _web(settings: Settings, startup: Startup) -> None:
    metrics = Metrics()
    furniture = furnish(settings)
    async with AsyncExitStack() as stack:
        stop = await stack.enter_async_context(stop_requested())
        listener = stack.enter_context(_listening(settings.server.host, settings.server.port))
        store, announce = await stack.enter_async_context(open_store(settings))
        await stack.enter_async_context(furniture.mcp.running(at_once=False))
        await stack.enter_async_context(_edge(settings, store, furniture, metrics, listener, Vault(store)))
        _say_ready(settings, furniture, listener, announce, startup)
        await stop.wait()


@contextmanager
def _listening(host: str, port: int) -> Generator[socket.socket]:
    """A listening socket. Raises Conflict when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        try:
            listener.bind((host, port))
        except OSError as taken:
            raise Conflict(
                f"cannot listen on {host}:{port}: {taken.strerror}; stop what has the port, or choose another: --port"
            ) from taken
        listener.listen(BACKLOG)
        listener.setblocking(False)
        yield listener


@asynccontextmanager
async def _edge(
    settings: Settings,
    store: Store,
    furniture: Furniture,
    metrics: Metrics,
    listener: socket.socket,
    vault: Vault,
) -> AsyncIterator[None]:
    """HTTP is answered for as long as it is entered; then streams are told to come back, and the rest finishes."""
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
        profiles=furniture.profiles,
        providers=furniture.providers,
        tools=list(furniture.tools.values()),
        mcp=furniture.mcp,
        quotas=quotas_of(settings, store, metrics),
        body_max_bytes=limits.body_max_bytes,
        buffer_max_bytes=limits.subscriber_buffer_bytes,
        stall_seconds=limits.subscriber_stall_seconds,
        body_timeout_seconds=limits.body_timeout_seconds,
        keeps_traces=limits.trace_hours > 0,
        vault=vault if furniture.forwards_authorization else None,
    )
    config = uvicorn.Config(
        _Abortable(build_app(edge, cors_origins=settings.server.cors_origins, checks_host=not settings.auth.tokens)),
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )
    server = _Server(config)
    async with hub.running(), feeds.running(), anyio.create_task_group() as tasks:
        if edge.vault is not None:
            tasks.start_soon(vault.answer)
            tasks.start_soon(vault.sweep)
        tasks.start_soon(server.serve, [listener])
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                server.should_exit = True
                await hub.close_streams()
                with anyio.move_on_after(CLOSE_SECONDS + 1):
                    await server.ended.wait()
            tasks.cancel_scope.cancel()


class _Abortable:
    """Lends requests the way to drop their connection: closing it politely would wait for a reader who never reads.

    `send` is a method of uvicorn's request, which knows its transport; under any other server nothing is lent.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        transport = getattr(getattr(send, "__self__", None), "transport", None)
        if isinstance(transport, asyncio.Transport):
            scope.setdefault("extensions", {})[ABORT] = transport.abort
        await self._app(scope, receive, send)


class _Server(uvicorn.Server):
    """uvicorn without its hands on the process's signals."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ended = anyio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().serve(sockets)
        finally:
            self.ended.set()


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
    startup.say_ready(f"threadcast listens on {url}  (model {furniture.profiles.default_model}, {where})")
