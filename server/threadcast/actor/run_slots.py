"""Bounds the runs of one principal that a worker works on at once, so that one caller cannot starve the others.

A run needs a slot while it calls a model or runs a tool. A run that waits for a person, for a client or for its
sub-chats has no slot, so a tree of sub-chats cannot block itself, even if there is only one slot. If no slot is free,
the run waits: the log records this, the chat is released, and the worker remembers the run's rank. When a slot becomes
free, the worker claims the first waiting chat again. A waiting chat becomes due again after some seconds, so that other
workers find it, too, and no waiting chat is lost when a worker is killed.

All slots are in the memory of one worker: no step of the store is added to a run (decision 0037). Only the async
methods wait, so every other method is one step for all actors of the worker.
"""

import heapq
import math
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from threadcast.agent_loop.plan import advance
from threadcast.agent_loop.steps import Step, Wait
from threadcast.base.telemetry import Metrics
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.runtime import say_runtime
from threadcast.profiles.profile import ChatTools
from threadcast.settings.limits import DEFAULT_LIMITS

__all__ = ["WAITS_FOR", "Rank", "RunSlot", "RunSlots", "rank_of"]

WAITS_FOR = "runs_at_once"
"""The reason in `waits_for` of the chat's runtime (PROTOCOL §7)."""

SENTENCE = "waiting until another of your runs ends: as many are at work as may be at once"
"""The status text of a waiting run, which pages and terminals show."""

SUSPENDED_MAX_RATIO = 2
"""The maximum number of runs with calls that wait for sub-chats or for answers of people, per slot and per level of
depth. The actors of such runs stay in the worker, so without a bound one caller could fill the worker. Each level has
additional room, so the deepest sub-chats can always run, and the chats above them continue afterwards."""

CHECK_SECONDS = 10.0
"""The mean seconds until a waiting chat is due again, so that workers that do not remember the chat find it. A check
costs the worker two small calls."""

CHECK_APART_SECONDS = 0.05
"""The seconds between the checks of two chats of one principal, so that thousands of waiting chats cost a worker only
20 checks a second. Each check may find a free slot, so when a worker dies, other workers soon continue its waiting
runs."""

WAITING_MAX = 1_000
"""The maximum number of waiting chats that a worker remembers for one principal; further chats are found by their next
check."""

LOOK_SECONDS = 5.0
"""The seconds between two passes over all remembered chats; a pass over 100,000 chats takes 10 ms."""


@dataclass(frozen=True, slots=True, order=True)
class Rank:
    """A run's rank among the waiting runs of its principal; the smallest is first. The runs of the deepest sub-chats
    come first, because other runs wait for them; among equals the earlier run comes first. `height` is the negative
    depth of the chat."""

    height: int
    since_ms: int

    def __str__(self) -> str:
        return f"{self.height} {self.since_ms}"

    @classmethod
    def parse(cls, text: str) -> "Rank":
        height, _, since_ms = text.partition(" ")
        return cls(int(height), int(since_ms))

    @classmethod
    def of(cls, state: OwnerState) -> "Rank":
        """Return the rank of the chat's open run."""
        run, parent = state.private.run, state.private.relations.parent
        return cls(-parent.depth if parent is not None else 0, run.started_at_ms if run is not None else 0)


def rank_of(state: OwnerState) -> str:
    """Return the rank of the chat's run as text, '' if the run does not wait for a slot."""
    return str(Rank.of(state)) if state.runtime.waits_for is not None else ""


@dataclass(slots=True)
class _Principal:
    """The runs of one principal in this worker. `busy` and `suspended` are ids of chats: `busy` chats have a slot, and
    `suspended` chats have no slot while their calls wait. `waiting` has the rank of each waiting chat, and the time
    until which this rank is valid, in monotonic seconds; `heap` has these ranks in order, and outdated ranks.
    `resuming` are the runs whose sub-chats have ended. `checked_at` is the time of the last check that was
    scheduled."""

    busy: set[str] = field(default_factory=set)
    suspended: set[str] = field(default_factory=set)
    resuming: deque[tuple[str, anyio.Event]] = field(default_factory=deque)
    checked_at: float = -math.inf
    waiting: dict[str, tuple[Rank, float]] = field(default_factory=dict)
    heap: list[tuple[Rank, str]] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.busy or self.suspended or self.waiting)


class RunSlots:
    """The slots of one worker: `count` for each principal. `begin` is called with a waiting chat whose slot has become
    free; it must not wait, and the chat keeps the slot until `free` is called. `may_begin` tells whether the worker
    takes further chats."""

    def __init__(self, count: int = DEFAULT_LIMITS.runs_per_principal, metrics: Metrics | None = None) -> None:
        self.count = count
        self.begin: Callable[[str], None] = self.free
        self.may_begin: Callable[[], bool] = lambda: False
        self._metrics = metrics
        self._principals: dict[str, _Principal] = {}
        self._principal_of: dict[str, str] = {}
        self._waiting_count = 0
        self._looked_at = -math.inf

    def take(self, chat_id: str, principal_id: str, rank: Rank) -> bool:
        """Give the chat a slot, unless it has one. Returns False if no slot is free."""
        mine = self._principals.setdefault(principal_id, _Principal())
        if chat_id not in mine.busy and not self._is_free_for(mine, rank):
            return False
        mine.busy.add(chat_id)
        self._principal_of[chat_id] = principal_id
        self._forget(mine, chat_id)
        return True

    def is_free(self, chat_id: str, principal_id: str, rank: Rank) -> bool:
        """Return whether `take` would succeed."""
        mine = self._principals.get(principal_id)
        return mine is None or chat_id in mine.busy or self._is_free_for(mine, rank)

    def _is_free_for(self, mine: _Principal, rank: Rank) -> bool:
        suspended_max = SUSPENDED_MAX_RATIO * self.count * (1 - rank.height)
        return len(mine.busy) < self.count and not mine.resuming and len(mine.suspended) < suspended_max

    def free(self, chat_id: str) -> None:
        """Free the chat's slot, if it has one, and give the slot to a waiting run."""
        principal_id = self._principal_of.pop(chat_id, None)
        if principal_id is None:
            return
        mine = self._principals[principal_id]
        mine.busy.discard(chat_id)
        mine.suspended.discard(chat_id)
        self._pass_on(principal_id, mine)

    def wait(self, chat_id: str, principal_id: str, rank: Rank, within_ms: int) -> None:
        """Remember a chat that was released and is due again `within_ms` from now. If a slot is free, the chat gets it
        at once."""
        mine = self._principals.setdefault(principal_id, _Principal())
        self._forget(mine, chat_id)
        if len(mine.waiting) < WAITING_MAX:
            mine.waiting[chat_id] = (rank, time.monotonic() + within_ms / 1_000)
            heapq.heappush(mine.heap, (rank, chat_id))
            self._count_waiting(1)
        self._pass_on(principal_id, mine)

    def forget(self, chat_id: str, principal_id: str) -> None:
        """Forget that the chat waits, because it has an owner again."""
        if (mine := self._principals.get(principal_id)) is not None:
            self._forget(mine, chat_id)

    def look(self) -> None:
        """Give free slots to waiting runs. Every LOOK_SECONDS, also forget the chats that are due again."""
        if not self._principals:
            return
        now = time.monotonic()
        forgets = now >= self._looked_at + LOOK_SECONDS
        self._looked_at = now if forgets else self._looked_at
        for principal_id, mine in list(self._principals.items()):
            if forgets:
                for chat_id in [chat_id for chat_id, (_, until) in mine.waiting.items() if until < now]:
                    self._forget(mine, chat_id)
            self._pass_on(principal_id, mine)

    def check_ms(self, principal_id: str) -> int:
        """Return the milliseconds until the next chat of this principal that begins to wait will be due again."""
        now = time.monotonic()
        check_at = now + CHECK_SECONDS * random.uniform(0.5, 1.5)
        if (mine := self._principals.get(principal_id)) is not None:
            check_at = mine.checked_at = max(check_at, mine.checked_at + CHECK_APART_SECONDS)
        return int(1_000 * (check_at - now))

    def suspend(self, chat_id: str) -> None:
        """Give the chat's slot to other runs while the chat's run waits for sub-chats or people."""
        principal_id = self._principal_of.get(chat_id)
        if principal_id is None:  # the run was stopped, and its tool does not end
            return
        mine = self._principals[principal_id]
        mine.busy.discard(chat_id)
        mine.suspended.add(chat_id)
        self._pass_on(principal_id, mine)

    async def resume(self, chat_id: str) -> None:
        """Wait until a suspended chat has a slot again. Resuming runs get slots before all other runs."""
        principal_id = self._principal_of.get(chat_id)
        mine = self._principals[principal_id] if principal_id is not None else _Principal()
        if chat_id not in mine.suspended:
            return
        if len(mine.busy) < self.count and not mine.resuming:
            mine.suspended.discard(chat_id)
            mine.busy.add(chat_id)
            return
        granted = anyio.Event()
        mine.resuming.append((chat_id, granted))
        try:
            await granted.wait()
        finally:
            if not granted.is_set():  # cancelled
                mine.resuming.remove((chat_id, granted))

    def _pass_on(self, principal_id: str, mine: _Principal) -> None:
        while len(mine.busy) < self.count:
            if mine.resuming:
                chat_id, granted = mine.resuming.popleft()
                mine.suspended.discard(chat_id)
                mine.busy.add(chat_id)
                granted.set()
                continue
            while mine.heap and mine.waiting.get(mine.heap[0][1], (None,))[0] != mine.heap[0][0]:
                heapq.heappop(mine.heap)
            if not mine.heap or not self.may_begin() or not self._is_free_for(mine, mine.heap[0][0]):
                break
            chat_id = mine.heap[0][1]
            self._forget(mine, chat_id)
            mine.busy.add(chat_id)
            self._principal_of[chat_id] = principal_id
            self.begin(chat_id)
        if mine.is_empty:
            self._principals.pop(principal_id, None)

    def _forget(self, mine: _Principal, chat_id: str) -> None:
        if mine.waiting.pop(chat_id, None) is not None:
            self._count_waiting(-1)

    def _count_waiting(self, change: int) -> None:
        self._waiting_count += change
        if self._metrics is not None:
            self._metrics.runs_waiting.labels(WAITS_FOR).set(self._waiting_count)


class _Full(Exception):
    """Raised to undo the planned step, because no slot is free."""


class RunSlot:
    """The slot of one chat's actor."""

    def __init__(self, slots: RunSlots, chat_id: str) -> None:
        self._slots = slots
        self._chat_id = chat_id
        self._calls_count = 0
        self._principal_id = ""

    def advance(self, builder: EntryBuilder, table: ChatTools) -> Step:
        """Announce the run's next step and return it, as `plan.advance` does. If the step needs a slot and none is
        free, announce instead that the run waits."""
        try:
            with builder.all_or_nothing():
                step = advance(builder, table)
                if not isinstance(step, Wait) and not self.take(builder.state):
                    raise _Full
        except _Full:
            say_runtime(builder, "generating", status_text=SENTENCE, waits_for=WAITS_FOR)
            return Wait()
        if not isinstance(step, Wait) and builder.state.runtime.waits_for is not None:
            say_runtime(builder, builder.state.runtime.state)
        return step

    def take(self, state: OwnerState) -> bool:
        """Take a slot, unless the chat has one. Returns False if no slot is free."""
        return self._slots.take(self._chat_id, self._principal_id, Rank.of(state))

    def free(self) -> None:
        """Free the slot, because no task works on the run."""
        self._calls_count = 0
        self._slots.free(self._chat_id)

    def check_ms(self) -> int:
        return self._slots.check_ms(self._principal_id)

    def wait(self, state: OwnerState, within_ms: int) -> None:
        """Remember that the released chat waits and is due again `within_ms` from now."""
        self._slots.wait(self._chat_id, self._principal_id, Rank.of(state), within_ms)

    def begin(self, principal_id: str) -> None:
        """Remember the principal of the chat. The chat now has an owner, so it no longer waits."""
        self._principal_id = principal_id
        self._slots.forget(self._chat_id, principal_id)

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """Leave the slot to other runs during the block, in which a tool call waits for a sub-chat or a person. Several
        calls of a round may wait at once; the last call to end waits for the slot."""
        self._calls_count += 1
        self._slots.suspend(self._chat_id)
        try:
            yield
        finally:
            self._calls_count = max(0, self._calls_count - 1)
        await self.regained()

    async def regained(self) -> None:
        """Wait until the chat has its slot again, unless a tool call waits for a sub-chat or a person now."""
        if self._calls_count == 0:
            await self._slots.resume(self._chat_id)
            if self._calls_count:  # another call of the run has begun to wait meanwhile
                self._slots.suspend(self._chat_id)
