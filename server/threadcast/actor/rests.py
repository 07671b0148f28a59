"""Compacts the logs of the chats that this worker has released, after a while and one after the other (DESIGN §2).

The next command of a conversation usually comes within a minute, and a log that is compacted before that command has to
be compacted again. So an actor only adds its chat to `Rests` when it releases the chat. A chat whose log has grown much
is compacted at once. The release also notes in the store when another worker may compact the log; if this worker ends
before it has done so, the sweep of another worker finds the chat.
"""

import math
import time
from typing import NamedTuple, Protocol

import anyio
import structlog

from threadcast.actor.checkpoint_policy import CheckpointPolicy
from threadcast.actor.compaction import compacted
from threadcast.actor.state_cache import StateCache
from threadcast.actor.traces import Traces
from threadcast.base.boundary import pass_on
from threadcast.base.telemetry import Metrics
from threadcast.chat.owner_state import OwnerState
from threadcast.store.load import load_folded
from threadcast.store.ports import Compactions, Facts, Log
from threadcast_protocol.wire.errors import Unavailable
from threadcast_protocol.wire.ids import Head

__all__ = ["LEFT_SECONDS", "Rest", "Rests"]

_log = structlog.get_logger()

LEFT_SECONDS = 120.0
"""Seconds after which another worker compacts a log that should have been compacted."""

LEFT_MAX_COUNT = 20
"""The maximum number of logs that a sweep takes over from other workers, in each bucket."""

REMEMBERED_MAX = 50_000
"""The maximum number of remembered chats, some 10 MB. If there are more, the oldest are left to other workers."""

AWAY_SECONDS = 5.0
"""Seconds for which the chats of a bucket are left to other workers after the store was unavailable for one of them, so
that the chats of other buckets need not wait for it."""


class Logs(Log, Compactions, Facts, Protocol):
    """The part of the store that compacts logs."""


class Rest(NamedTuple):
    """A chat at rest: when to compact its log, in seconds of the monotonic clock, the head of its log, and the chat's
    owner. A chat that another worker has released has an unknown head and owner."""

    at: float
    head: str | None = None
    owner: str | None = None


class Rests:
    """The chats at rest of one worker, in the order of their releases."""

    def __init__(self) -> None:
        self._now: dict[str, Rest] = {}  # Chats whose logs are to be compacted at once.
        self._later: dict[str, Rest] = {}  # All have rests of the same length, so the first is due first.
        self._away: dict[int, float] = {}  # When the store was last unavailable for a bucket.
        self._added = anyio.Event()

    def add(self, chat_id: str, rest: Rest) -> None:
        self.forget(chat_id)
        rests = self._now if rest.at <= time.monotonic() else self._later
        rests[chat_id] = rest
        if len(rests) > REMEMBERED_MAX:
            del rests[next(iter(rests))]
        self._added.set()

    def forget(self, chat_id: str) -> None:
        """Forget the chat, because it is owned again."""
        self._now.pop(chat_id, None)
        self._later.pop(chat_id, None)

    async def take_over(self, bucket: int, store: Compactions) -> None:
        """Add chats of a bucket that other workers have left uncompacted. Raises Failed."""
        for chat_id in await store.left_rests(bucket, LEFT_MAX_COUNT, int(1_000 * LEFT_SECONDS)):
            if chat_id not in self._now and chat_id not in self._later:
                self.add(chat_id, Rest(time.monotonic()))

    async def run(self, store: Logs, cache: StateCache, traces: Traces | None, metrics: Metrics) -> None:
        """Compact the log of each remembered chat at its time, and combine its traces, until cancelled. If the store is
        unavailable, the chat is left to another worker."""
        while True:
            chat_id, rest = await self._next()
            bucket = store.bucket_of(chat_id)
            if time.monotonic() < self._away.get(bucket, -math.inf) + AWAY_SECONDS:
                continue
            try:
                if traces is not None and rest.owner is not None:
                    await traces.combine(chat_id, rest.owner)
                await _compact(chat_id, rest, store, cache)
            except BaseException as wrong:  # a boundary: one chat must not end the task
                pass_on(wrong)
                metrics.store_errors.labels("compact").inc()
                if isinstance(wrong, Unavailable):
                    self._away[bucket] = time.monotonic()
                else:
                    _log.exception("chat.not_compacted", chat_id=chat_id)

    async def _next(self) -> tuple[str, Rest]:
        """Wait until a log is to be compacted, and return its chat, which is then no longer remembered."""
        while True:
            self._added = anyio.Event()
            for rests in (self._now, self._later):
                chat_id, rest = next(iter(rests.items()), ("", None))
                if rest is not None and rest.at <= time.monotonic():
                    del rests[chat_id]
                    return chat_id, rest
            pause_seconds = None if rest is None else rest.at - time.monotonic()
            with anyio.move_on_after(pause_seconds):
                await self._added.wait()


async def _compact(chat_id: str, rest: Rest, store: Logs, cache: StateCache) -> None:
    """Compact the log of a chat that is still at rest. A log that cannot be compacted is left as it is. Raises
    Unavailable."""
    cached = None if rest.head is None else cache.peek(chat_id, rest.head)
    head = rest.head or ""
    try:
        state, policy = await _loaded(store, chat_id) if cached is None else (cached.state, cached.checkpoint_policy)
        if rest.head not in (None, state.head):
            return
        head = state.head
        short = await compacted(store, state, policy)
    except Unavailable:
        raise
    except BaseException as wrong:  # a boundary: otherwise each worker in turn would try the same, and fail
        pass_on(wrong)
        _log.exception("chat.not_compacted", chat_id=chat_id)
        head, short = head or (await store.heads([chat_id]))[0], None
    is_done = await store.compact(chat_id, head, short)
    # An actor that has taken the state meanwhile keeps its policy, and writes its next checkpoint earlier.
    if is_done and short is not None and cached is not None and cache.peek(chat_id, head) is cached:
        policy.move_checkpoint(Head.parse(head).entry_id, len(short.checkpoint), short.trim)
        policy.note_compaction()


async def _loaded(store: Log, chat_id: str) -> tuple[OwnerState, CheckpointPolicy]:
    """Read a chat whose state is not cached. Raises Gap, NewerVersion, Failed."""
    folded = await load_folded(store, chat_id, with_facts=True)
    return folded.state, CheckpointPolicy.of(folded.extent)
