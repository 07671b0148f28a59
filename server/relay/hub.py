"""The hub: a relay per watched chat; the first subscriber opens it, the last one closes it.

It also does what is done once for all relays: heartbeats, the pipelined position checks that find what pub/sub lost,
and the end of all streams at shutdown.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import structlog
from anyio.abc import TaskGroup

from protocol.errors import Unavailable
from server.relay.relay import Relay
from server.store.port import Store
from server.telemetry import Metrics

__all__ = ["Hub"]

_log = structlog.get_logger()

OPEN_SECONDS = 5.0
"""How long a subscriber waits for its relay before it hears `unavailable`."""

TICK_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0
"""PROTOCOL §4; clients give up after 45 s."""

QUIET_SECONDS = 1.0
CHECK_EVERY_SECONDS = 20.0
"""A chat quiet this long is compared with the store: soon after its last event while a run is open, else now and
then (DESIGN §5)."""


@dataclass(slots=True)
class _Open:
    """A relay, its own cancel scope, and how many need it."""

    relay: Relay
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    users: int = 0


class Hub:
    """Runs inside `async with hub.running()`. `heartbeat_seconds` of silence bring a heartbeat."""

    def __init__(self, store: Store, metrics: Metrics, *, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> None:
        self._store = store
        self._metrics = metrics
        self.heartbeat_seconds = heartbeat_seconds
        self._open: dict[str, _Open] = {}
        self._tasks: TaskGroup | None = None
        self._is_closing = False

    @property
    def is_closing(self) -> bool:
        """Streams are being told to come back elsewhere."""
        return self._is_closing

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Hub"]:
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._tick_forever)
            try:
                yield self
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def relay(self, chat_id: str) -> AsyncIterator[Relay]:
        """The chat's relay, ready, for as long as it is needed.

        Raises:
            Unavailable: it did not become ready in time, or cannot be served by this process.
        """
        if self._tasks is None or self._is_closing:
            raise Unavailable("the server is going down; connect again")
        here = self._open.get(chat_id)
        if here is None:
            here = self._open[chat_id] = _Open(Relay(chat_id, self._store, self._metrics))
            self._tasks.start_soon(self._run, here)
        here.users += 1
        try:
            with anyio.move_on_after(OPEN_SECONDS):
                await here.relay.ready.wait()
            if not here.relay.ready.is_set() or here.relay.trouble is not None:
                raise Unavailable("the chat cannot be read at the moment; try again")
            yield here.relay
        finally:
            here.users -= 1
            if here.users == 0:
                here.scope.cancel()
                if self._open.get(chat_id) is here:
                    del self._open[chat_id]

    async def close_streams(self) -> None:
        """Tell every reader to come back elsewhere, and end its stream."""
        self._is_closing = True
        for here in list(self._open.values()):
            for subscriber in list(here.relay.subscribers):
                subscriber.end("shutdown")

    async def _run(self, here: _Open) -> None:
        with here.scope:
            try:
                await here.relay.run()
            except Exception:  # the boundary of a relay: one chat's trouble must not end the others' streams
                _log.exception("relay.crashed", chat_id=here.relay.chat_id)
            for subscriber in list(here.relay.subscribers):
                subscriber.end("store")
        if self._open.get(here.relay.chat_id) is here:
            del self._open[here.relay.chat_id]

    async def _tick_forever(self) -> None:
        while True:
            await anyio.sleep(TICK_SECONDS)
            now = time.monotonic()
            for here in self._open.values():
                for subscriber in list(here.relay.subscribers):
                    subscriber.beat(now, self.heartbeat_seconds)
            try:
                await self._check_positions(now)
            except Unavailable:
                continue  # the relays notice by themselves; checks go on when the store is back

    async def _check_positions(self, now: float) -> None:
        """Compare heads, all in one pipeline. A relay that moved meanwhile is left alone."""
        asked = [(here.relay, here.relay.head) for here in self._open.values() if _is_due(here.relay, now)]
        if not asked:
            return
        heads = await self._store.heads([relay.chat_id for relay, _ in asked])
        for (relay, head_then), head in zip(asked, heads, strict=True):
            relay.checked_at = now
            await relay.check_against(head, head_then)


def _is_due(relay: Relay, now: float) -> bool:
    if not relay.ready.is_set() or now - relay.changed_at < QUIET_SECONDS:
        return False
    if not relay.is_at_rest and relay.checked_at < relay.changed_at + QUIET_SECONDS:
        return True
    return now - relay.checked_at >= CHECK_EVERY_SECONDS
