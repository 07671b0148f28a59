"""The hub: a relay per watched chat; the first subscriber opens it, the last one closes it.

It also does what is done once for all: heartbeats of the open streams, how many there may be, the pipelined position
checks that find what pub/sub lost, and the end of all streams at shutdown. One relay's trouble is its own: each check
has its own boundary, and heartbeats wait for no store.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import anyio
import structlog
from anyio.abc import TaskGroup

from protocol.errors import Failed, RateLimited, Unavailable
from server.relay.connection import Connection
from server.relay.presence import PresenceRooms
from server.relay.relay import LOADS_AT_ONCE, Relay
from server.store.port import Store
from server.telemetry import Metrics

__all__ = ["NEWER_VERSION", "Hub"]

_log = structlog.get_logger()

OPEN_SECONDS = 5.0
"""How long a subscriber waits for its relay before it hears `unavailable`."""

NEWER_VERSION = "a newer version of this server wrote this chat; ask another process of it"

TICK_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0
"""PROTOCOL §4; clients give up after 45 s."""

QUIET_SECONDS = 1.0
CHECK_EVERY_SECONDS = 20.0
"""A chat quiet this long is compared with the store: soon after its last event while a run is open, else now and
then (DESIGN §5)."""

STREAMS_PER_PRINCIPAL = 256
STREAMS_MAX = 20_000
"""The defaults of `limits.streams_per_principal` and `limits.streams_max`."""


@dataclass(slots=True)
class _Open:
    """A relay, its own cancel scope, and how many need it."""

    relay: Relay
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    users: int = 0


class Hub:
    """Runs inside `async with hub.running()`. `heartbeat_seconds` of silence bring a heartbeat."""

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        streams_per_principal: int = STREAMS_PER_PRINCIPAL,
        streams_max: int = STREAMS_MAX,
        shows_names: bool = False,
    ) -> None:
        """`shows_names`: presence tells whose streams they are."""
        self.presence = PresenceRooms(store, shows_names=shows_names)
        self._store = store
        self._metrics = metrics
        self.heartbeat_seconds = heartbeat_seconds
        self._streams_per_principal = streams_per_principal
        self._streams_max = streams_max
        self._open: dict[str, _Open] = {}
        self._loads = anyio.CapacityLimiter(LOADS_AT_ONCE)
        self._streams_of: Counter[str] = Counter()
        self._connections: set[Connection] = set()
        self._waits: set[anyio.CancelScope] = set()
        self._checking: set[int] = set()  # buckets whose check is on its way
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
            self.presence.run_in(tasks)
            tasks.start_soon(self._beat_forever)
            tasks.start_soon(self._check_forever)
            try:
                yield self
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    def admitted(self, principal_id: str) -> AbstractContextManager[None]:
        """A place for one more stream, for as long as it is open.

        Raises:
            RateLimited: this caller, or the process, has as many as it may have.
        """
        if self._streams_of[principal_id] >= self._streams_per_principal:
            raise RateLimited(f"you have {self._streams_per_principal} open streams; close one, or share one for chats")
        if self._streams_of.total() >= self._streams_max:
            raise RateLimited("this server has as many open streams as it may have; come back later")
        return _Admitted(self._streams_of, principal_id)

    def kept_alive(self, connection: Connection) -> AbstractContextManager[None]:
        """Heartbeats, and the goodbye at shutdown, for as long as the stream is open."""
        return _KeptAlive(self, connection)

    @contextmanager
    def until_closing(self) -> Iterator[None]:
        """What runs inside is cut short when streams are told to leave: no answer may keep the process from ending."""
        with anyio.CancelScope() as scope:
            self._waits.add(scope)
            if self._is_closing:
                scope.cancel()
            try:
                yield
            finally:
                self._waits.discard(scope)

    def relay(self, chat_id: str) -> AbstractAsyncContextManager[Relay]:
        """The chat's relay, ready, for as long as it is needed.

        Raises:
            Unavailable: it did not become ready in time, or cannot be served by this process.
        """
        return _Needed(self, chat_id)

    async def _relay_needed(self, chat_id: str) -> _Open:
        if self._tasks is None or self._is_closing:
            raise Unavailable("the server is going down; connect again")
        here = self._open.get(chat_id)
        if here is None:
            here = self._open[chat_id] = _Open(Relay(chat_id, self._store, self._metrics, self._loads))
            self._tasks.start_soon(self._run, here)
        here.users += 1
        try:
            with anyio.move_on_after(OPEN_SECONDS):
                await here.relay.ready.wait()
            if here.relay.trouble == "newer_version":
                raise Unavailable(NEWER_VERSION)
            if not here.relay.ready.is_set() or here.relay.trouble is not None:
                raise Unavailable("the chat cannot be read at the moment; try again")
        except BaseException:
            self._relay_not_needed(here)
            raise
        return here

    def _relay_not_needed(self, here: _Open) -> None:
        here.users -= 1
        if here.users == 0:
            here.scope.cancel()
            if self._open.get(here.relay.chat_id) is here:
                del self._open[here.relay.chat_id]

    async def close_streams(self) -> None:
        """Tell every reader to come back elsewhere, and end its stream; whoever only waits is answered with what is
        known."""
        self._is_closing = True
        for scope in list(self._waits):
            scope.cancel()
        for connection in list(self._connections):
            connection.end("shutdown")

    async def _run(self, here: _Open) -> None:
        with here.scope:
            try:
                await here.relay.run()
            except Exception:  # the boundary of a relay: one chat's trouble must not end the others' streams
                _log.exception("relay.crashed", chat_id=here.relay.chat_id)
                here.relay.trouble = "store"
                here.relay.ready.set()
            for subscriber in list(here.relay.subscribers):
                subscriber.end("store")
        if self._open.get(here.relay.chat_id) is here:
            del self._open[here.relay.chat_id]

    async def _beat_forever(self) -> None:
        while True:
            await anyio.sleep(TICK_SECONDS)
            now = time.monotonic()
            for connection in list(self._connections):
                connection.beat(now, self.heartbeat_seconds)

    async def _check_forever(self) -> None:
        while True:
            await anyio.sleep(TICK_SECONDS)
            await self._check_positions(time.monotonic())

    async def _check_positions(self, now: float) -> None:
        """Compare heads, all in one pipeline, but each bucket for itself: one whose node does not answer keeps none of
        the others waiting. A relay that moved meanwhile is left alone."""
        by_bucket: dict[int, list[tuple[Relay, str]]] = {}
        for here in self._open.values():
            if _is_due(here.relay, now):
                bucket = self._store.bucket_of(here.relay.chat_id)
                by_bucket.setdefault(bucket, []).append((here.relay, here.relay.head))
        for bucket, asked in by_bucket.items():
            if bucket not in self._checking and self._tasks is not None:
                self._checking.add(bucket)
                self._tasks.start_soon(self._check_bucket, bucket, asked, now)

    async def _check_bucket(self, bucket: int, asked: list[tuple[Relay, str]], now: float) -> None:
        try:
            heads = await self._store.heads([relay.chat_id for relay, _ in asked])
            async with anyio.create_task_group() as tasks:
                for (relay, head_then), head in zip(asked, heads, strict=True):
                    relay.checked_at = now
                    if head != head_then:
                        tasks.start_soon(self._check, relay, head, head_then)
        except Unavailable:
            return  # the relays notice by themselves; checks go on when the store is back
        except Exception:  # the boundary of a bucket's check: the next one may succeed
            _log.exception("relay.check_failed", bucket=bucket)
        finally:
            self._checking.discard(bucket)

    async def _check(self, relay: Relay, head: str, head_then: str) -> None:
        try:
            await relay.check_against(head, head_then)
        except Failed as failed:
            _log.warning("relay.check_failed", chat_id=relay.chat_id, error=str(failed))
        except Exception:  # the boundary of a relay
            _log.exception("relay.check_failed", chat_id=relay.chat_id)


class _Admitted:
    """One stream counted. This and what follows are classes because each open stream keeps one of each: a generator,
    with what contextlib adds, would be half a kilobyte more (`bench.memory`)."""

    __slots__ = ("_counts", "_principal_id")

    def __init__(self, counts: Counter[str], principal_id: str) -> None:
        self._counts = counts
        self._principal_id = principal_id

    def __enter__(self) -> None:
        self._counts[self._principal_id] += 1

    def __exit__(self, *_: object) -> None:
        self._counts[self._principal_id] -= 1
        if not self._counts[self._principal_id]:
            del self._counts[self._principal_id]


class _KeptAlive:
    """One stream among those that get heartbeats."""

    __slots__ = ("_connection", "_hub")

    def __init__(self, hub: Hub, connection: Connection) -> None:
        self._hub = hub
        self._connection = connection

    def __enter__(self) -> None:
        self._hub._connections.add(self._connection)
        if self._hub.is_closing:  # it began while this reader came in
            self._connection.end("shutdown")

    def __exit__(self, *_: object) -> None:
        self._hub._connections.discard(self._connection)


class _Needed:
    """One user of a relay."""

    __slots__ = ("_chat_id", "_here", "_hub")

    def __init__(self, hub: Hub, chat_id: str) -> None:
        self._hub = hub
        self._chat_id = chat_id

    async def __aenter__(self) -> Relay:
        self._here = await self._hub._relay_needed(self._chat_id)
        return self._here.relay

    async def __aexit__(self, *_: object) -> None:
        self._hub._relay_not_needed(self._here)


def _is_due(relay: Relay, now: float) -> bool:
    if not relay.ready.is_set() or now - relay.changed_at < QUIET_SECONDS:
        return False
    if not relay.is_at_rest and relay.checked_at < relay.changed_at + QUIET_SECONDS:
        return True
    return now - relay.checked_at >= CHECK_EVERY_SECONDS
