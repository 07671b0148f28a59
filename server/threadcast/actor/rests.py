"""Remembers the chats that this worker has released, and compacts their logs after a while, one after the other
(DESIGN §2).

The next command of a conversation usually comes within a minute, and a log that is compacted before that command has to
be compacted again. So an actor only adds its chat to `Rests` when it releases the chat. The release makes the chat due
LEFT_SECONDS after its log should be compacted. The compaction removes this. If it never comes, because the worker has
ended, another worker takes the chat, finds nothing to do, and adds the chat to its own rests.
"""

import time
from typing import NamedTuple, Protocol

import anyio
import structlog

from threadcast.actor.checkpoint_policy import CheckpointPolicy
from threadcast.actor.compaction import compacted, is_compacted
from threadcast.actor.state_cache import StateCache
from threadcast.actor.traces import Traces
from threadcast.base.boundary import pass_on
from threadcast.base.telemetry import Metrics
from threadcast.chat.owner_state import OwnerState
from threadcast.settings.limits import Limits
from threadcast.store.load import load_folded
from threadcast.store.ports import Compactions, Log
from threadcast_protocol.wire.errors import Unavailable
from threadcast_protocol.wire.ids import Head

__all__ = ["Rest", "Rests", "rest_of"]

_log = structlog.get_logger()

LEFT_SECONDS = 120.0
"""Seconds after which another worker takes a chat whose log should have been compacted. A worker compacts some 400
logs a second, so it needs two minutes for all that it may remember."""

REMEMBERED_MAX = 50_000
"""The maximum number of remembered chats, some 10 MB. If there are more, the oldest are left to other workers."""

STORE_PAUSE_SECONDS = 0.5
"""Pause after a call to an unavailable store."""


class Logs(Log, Compactions, Protocol):
    """The part of the store that compacts logs."""


class Rest(NamedTuple):
    """A chat at rest: when to compact its log, in seconds of the monotonic clock, the chat's owner, the head of its
    log, when the release made it due, and when it is due for its own sake, both in Unix milliseconds (None: never)."""

    at: float
    owner: str
    head: str
    due_ms: int
    when_ms: int | None


def rest_of(
    state: OwnerState, policy: CheckpointPolicy, owner: str, now_ms: int, when_ms: int | None, limits: Limits
) -> Rest | None:
    """Return the rest that begins at `now_ms` of the store's clock, or None if the log is not compacted. `when_ms` is
    the time of the chat's timer."""
    if not is_compacted(state, policy):
        return None
    left_ms = now_ms + int(1_000 * (limits.compact_after_seconds + LEFT_SECONDS))
    return Rest(time.monotonic() + limits.compact_after_seconds, owner, state.head, due_of(when_ms, left_ms), when_ms)


def due_of(when_ms: int | None, left_ms: int) -> int:
    """Return when a released chat is due: at its timer, and at `left_ms` at the latest."""
    return left_ms if when_ms is None else min(when_ms, left_ms)


class Rests:
    """The chats at rest of one worker. All rests have the same length, so the first is always due first."""

    def __init__(self) -> None:
        self._rests: dict[str, Rest] = {}
        self._added = anyio.Event()

    def add(self, chat_id: str, rest: Rest) -> None:
        self.forget(chat_id)
        self._rests[chat_id] = rest
        if len(self._rests) > REMEMBERED_MAX:
            del self._rests[next(iter(self._rests))]
        self._added.set()

    def forget(self, chat_id: str) -> None:
        """Forget the chat, because it is owned again."""
        self._rests.pop(chat_id, None)

    async def run(self, store: Logs, cache: StateCache, traces: Traces | None, metrics: Metrics) -> None:
        """Compact the log of each remembered chat at its time, and combine its traces, until cancelled. If the store is
        unavailable, the chat is left to another worker."""
        while True:
            while not self._rests:
                self._added = anyio.Event()
                await self._added.wait()
            chat_id, rest = next(iter(self._rests.items()))
            pause_seconds = rest.at - time.monotonic()
            if pause_seconds > 0:
                await anyio.sleep(pause_seconds)
                continue
            del self._rests[chat_id]
            try:
                if await _compact(chat_id, rest, store, cache) and traces is not None:
                    await traces.combine(chat_id, rest.owner)
            except BaseException as wrong:  # a boundary: one chat must not end the task
                pass_on(wrong)
                metrics.store_errors.labels("compact").inc()
                if not isinstance(wrong, Unavailable):
                    _log.exception("chat.not_compacted", chat_id=chat_id)
                await anyio.sleep(STORE_PAUSE_SECONDS)


async def _compact(chat_id: str, rest: Rest, store: Logs, cache: StateCache) -> bool:
    """Compact the log of a chat. A log that cannot be compacted is left as it is. Returns False if the chat is at rest
    no more. Raises Unavailable."""
    cached = cache.peek(chat_id, rest.head)
    try:
        state, policy = await _loaded(store, chat_id) if cached is None else (cached.state, cached.checkpoint_policy)
        if state.head != rest.head:
            return False
        short = await compacted(store, state, policy)
    except Unavailable:
        raise
    except BaseException as wrong:  # a boundary: otherwise each worker in turn would try the same, and fail
        pass_on(wrong)
        _log.exception("chat.not_compacted", chat_id=chat_id)
        short = None
    is_done = await store.compact(chat_id, rest.head, short, rest.due_ms, rest.when_ms)
    # An actor that has taken the state meanwhile keeps its policy, and writes its next checkpoint earlier.
    if is_done and short is not None and cached is not None and cache.peek(chat_id, rest.head) is cached:
        policy.unmeasured_bytes = 0
        policy.move_checkpoint(Head.parse(rest.head).entry_id, len(short.checkpoint), short.trim)
    return is_done


async def _loaded(store: Log, chat_id: str) -> tuple[OwnerState, CheckpointPolicy]:
    """Read a chat whose state is no longer cached. Raises Gap, NewerVersion, Failed."""
    folded = await load_folded(store, chat_id, with_facts=True)
    return folded.state, CheckpointPolicy.of(folded.extent)
