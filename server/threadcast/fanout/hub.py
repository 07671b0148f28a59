"""The hub keeps one relay for each watched chat. The first subscriber opens the relay, and the last subscriber closes
it.

The hub also does the work that all streams share: heartbeats, the limit on open streams, the pipelined position checks
that find lost pub/sub messages, and the end of all streams at shutdown. Errors of one relay do not affect others: each
check has its own boundary, and heartbeats do not wait for the store.
"""

import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Protocol

import anyio
import structlog
from anyio.abc import TaskGroup

from threadcast.base.telemetry import Metrics
from threadcast.fanout.admissions import Admission, Admissions
from threadcast.fanout.connection import ReaderConnection
from threadcast.fanout.presence import PresenceRooms
from threadcast.fanout.relay import LOADS_AT_ONCE, Relay
from threadcast.fanout.shared import Followers
from threadcast.fanout.subscriber import Subscriber
from threadcast.settings.limits import DEFAULT_LIMITS, Limits
from threadcast.store.ports import Facts, Index, Log, PubSub, absent_id_of
from threadcast_protocol.wire.errors import Failed, NotFound, Unavailable

__all__ = ["Hub"]

_log = structlog.get_logger()

TICK_SECONDS = 0.5
QUIET_SECONDS = 1.0
CHECK_EVERY_SECONDS = 20.0
"""Seconds without an event after which a relay's head is compared with the store's head. The number is QUIET_SECONDS
while a run is open, and otherwise CHECK_EVERY_SECONDS (DESIGN §5)."""


_LISTED_AT_ONCE = 200
"""The maximum number of chats whose records are read in one request to the store."""


class HubStore(Facts, Index, Log, PubSub, Protocol):
    """The ports of the store that relays, presence and position checks need."""


class Hub:
    """Owns the relays, the heartbeats and the position checks of a process. Its tasks run inside `async with
    hub.running()`. The hub limits the number of streams and the time for which a stream is silent."""

    def __init__(
        self,
        store: HubStore,
        metrics: Metrics,
        limits: Limits = DEFAULT_LIMITS,
        *,
        shows_names: bool = False,
    ) -> None:
        """If `shows_names` is True, presence includes the names of readers."""
        self.presence = PresenceRooms(store, shows_names=shows_names)
        self._store = store
        self._limits = limits
        loads = anyio.CapacityLimiter(LOADS_AT_ONCE)
        self._relays = Followers(lambda key: Relay(key.lstrip("~"), store, metrics, loads, stored_as=key))
        self._looked_at = time.monotonic()
        self._deleted_at = -math.inf
        self._admissions = Admissions(limits)
        self._connections: set[ReaderConnection] = set()
        self._waits: set[anyio.CancelScope] = set()
        self._checking: set[int] = set()  # buckets with a check in progress
        self.tasks: TaskGroup | None = None
        """Runs relays, and the short tasks of streams; None while the hub does not run."""
        self.is_closing = False
        """True once streams are being ended for a shutdown."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Hub"]:
        async with anyio.create_task_group() as tasks:
            self.tasks = tasks
            self.presence.run_in(tasks)
            tasks.start_soon(self._beat_forever)
            tasks.start_soon(self._check_forever, tasks)
            try:
                async with self._relays.running(tasks):
                    yield self
            finally:
                self.tasks = None
                tasks.cancel_scope.cancel()

    def admitted(self, principal_id: str) -> Admission:
        """Return an `Admission` for one more stream. The stream counts while the admission's `with` block runs. Raises
        RateLimited."""
        return self._admissions.taken(principal_id)

    def kept_alive(self, connection: ReaderConnection) -> AbstractContextManager[None]:
        """Send heartbeats while the block runs, and end the stream at a shutdown."""
        return _KeptAlive(self, connection)

    @contextmanager
    def until_closing(self) -> Iterator[None]:
        """Cancel the block when streams are ended for a shutdown, so that no answer delays the end of the process."""
        with anyio.CancelScope() as scope:
            self._waits.add(scope)
            if self.is_closing:
                scope.cancel()
            try:
                yield
            finally:
                self._waits.discard(scope)

    def is_lately_own(self, chat_id: str, principal_id: str) -> bool:
        """Return whether an open relay has just seen that the chat exists and belongs to this principal. The store need
        not be asked then. For every other principal the answer is False, whether the chat exists or not, so that the
        time of an answer does not tell (AUTH-2)."""
        here = self._relays.open.get(chat_id)
        return here is not None and here.follower.owner_lately(self._deleted_at) == principal_id

    def found(self, chat_id: str, asked_at: float) -> None:
        """Record that the store was asked for the chat at the time `asked_at` of `time.monotonic`, and had it."""
        here = self._relays.open.get(chat_id)
        if here is not None:
            here.follower.seen_at = max(here.follower.seen_at, asked_at)

    def deleted(self) -> None:
        """Record that this process has deleted a chat. The next join of each chat then asks the store, so that joins of
        the deleted chat are refused at once."""
        self._deleted_at = time.monotonic()

    async def is_hidden(self, chat_id: str, principal_id: str) -> bool:
        """Return whether the id belongs to another principal's chat.

        Raises:
            NotFound: the principal has deleted the chat.
            Unavailable: the store does not answer.
        """
        if self.is_lately_own(chat_id, principal_id):
            return False
        meta = await self._store.meta(chat_id)
        if meta is not None and meta.owner == principal_id and meta.deleted:
            raise NotFound("no such chat")
        return meta is not None and meta.owner != principal_id

    def relay(self, chat_id: str, *, is_hidden: bool = False) -> AbstractAsyncContextManager[Relay]:
        """Yield the chat's relay, ready to use, and keep it open during the block.

        With `is_hidden` the relay follows an id that no chat can have, instead of `chat_id`. Readers of this relay get
        the same bytes as readers of an unknown chat, and the store does the same work. The readers therefore do not
        learn that the chat exists.

        Raises:
            Unavailable: the relay did not become ready in time, or this process cannot serve the chat.
        """
        if self.is_closing:
            raise Unavailable("the server is going down; connect again")
        return self._relays.use(absent_id_of(chat_id) if is_hidden else chat_id)

    async def close_streams(self) -> None:
        """Tell every reader to reconnect, and end the reader's stream. Waiting requests are answered with the present
        state."""
        self.is_closing = True
        for scope in list(self._waits):
            scope.cancel()
        for connection in list(self._connections):
            connection.end("shutdown")

    async def _beat_forever(self) -> None:
        while True:
            await anyio.sleep(TICK_SECONDS)
            now = time.monotonic()
            for connection in list(self._connections):
                connection.beat(now, self._limits.heartbeat_seconds)

    async def _check_forever(self, tasks: TaskGroup) -> None:
        while True:
            await anyio.sleep(TICK_SECONDS)
            now = time.monotonic()
            self._check_positions(tasks, now)
            if now - self._looked_at >= CHECK_EVERY_SECONDS:
                self._looked_at = now
                tasks.start_soon(self._check_hidden)

    def _check_positions(self, tasks: TaskGroup, now: float) -> None:
        """Compare the heads of relays with the store's heads, in one pipeline for each bucket. A bucket whose node does
        not answer does not delay the checks of other buckets. Relays whose head has changed meanwhile are skipped."""
        by_bucket: dict[int, list[tuple[Relay, str]]] = {}
        for relay in (here.follower for here in self._relays.open.values()):
            if _is_due(relay, now):
                by_bucket.setdefault(self._store.bucket_of(relay.stored_as), []).append((relay, relay.head))
        for bucket, asked in by_bucket.items():
            if bucket not in self._checking:
                self._checking.add(bucket)
                tasks.start_soon(self._check_bucket, bucket, asked, now)

    async def _check_bucket(self, bucket: int, asked: list[tuple[Relay, str]], now: float) -> None:
        try:
            heads = await self._store.heads([relay.stored_as for relay, _ in asked])
            async with anyio.create_task_group() as tasks:
                for (relay, head_then), head in zip(asked, heads, strict=True):
                    relay.checked_at = now
                    if head == head_then:
                        if head:
                            relay.seen_at = max(relay.seen_at, now)
                    else:
                        tasks.start_soon(self._check, relay, head_then)
        except Unavailable:
            return  # the relays notice the outage themselves; the next check follows when the store answers again
        except Exception:  # the boundary of a bucket's check: the next check may succeed
            _log.exception("relay.check_failed", bucket=bucket)
        finally:
            self._checking.discard(bucket)

    async def _check_hidden(self) -> None:
        """End the streams of readers that now have a chat with the id of their hidden chat, so that these readers
        connect again. This case occurs after the other principal's chat was deleted and its id was forgotten. The case
        is rare, so infrequent checks are enough."""
        hidden: dict[str, dict[str, list[Subscriber]]] = {}
        for relay in [here.follower for here in self._relays.open.values()]:
            for reader in relay.hidden:
                hidden.setdefault(reader.principal_id, {}).setdefault(relay.chat_id, []).append(reader)
        try:
            for principal_id, readers in hidden.items():
                chat_ids = list(readers)
                for start in range(0, len(chat_ids), _LISTED_AT_ONCE):
                    page = chat_ids[start : start + _LISTED_AT_ONCE]
                    for meta in await self._store.listed(principal_id, page):
                        for reader in readers[meta.chat_id]:
                            reader.end("own_now")
        except Unavailable:
            return  # the next check tries again
        except Exception:  # the boundary of this check: the next check may succeed
            _log.exception("hub.check_failed")

    async def _check(self, relay: Relay, head_then: str) -> None:
        try:
            await relay.reload_from(head_then)
        except Failed as failed:
            _log.warning("relay.check_failed", chat_id=relay.chat_id, error=str(failed))
        except Exception:  # the boundary of a relay
            _log.exception("relay.check_failed", chat_id=relay.chat_id)


class _KeptAlive:
    """Registers one stream for heartbeats. This is a class and not a generator, because a generator takes more memory,
    as described at `Admission`."""

    __slots__ = ("_connection", "_hub")

    def __init__(self, hub: Hub, connection: ReaderConnection) -> None:
        self._hub = hub
        self._connection = connection

    def __enter__(self) -> None:
        self._hub._connections.add(self._connection)
        if self._hub.is_closing:  # the shutdown began while this reader connected
            self._connection.end("shutdown")

    def __exit__(self, *_: object) -> None:
        self._hub._connections.discard(self._connection)


def _is_due(relay: Relay, now: float) -> bool:
    if not relay.ready.is_set() or now - relay.changed_at < QUIET_SECONDS:
        return False
    if not relay.is_at_rest and relay.checked_at < relay.changed_at + QUIET_SECONDS:
        return True
    return now - relay.checked_at >= CHECK_EVERY_SECONDS
