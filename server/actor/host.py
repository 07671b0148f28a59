"""The host of a worker process: finds chats with work, runs an actor for each, keeps their leases, drains.

Three ways lead a chat here, each a safety net for the one before: a bell that a post rings, a sweep over all buckets
that finds lost bells and dead owners, and, for chats already owned, mail or the beat's answer (DISPATCH §5). The
lease only avoids double work; safety is the fence's and the append's business.
"""

import random
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup

from protocol.errors import Failed, Unavailable
from server.actor.actor import Actor, End
from server.actor.workplace import Workplace
from server.foreign import pass_on
from server.store.port import Beat, Claimed, Lost

__all__ = ["Host", "Rhythm"]

_log = structlog.get_logger()

CLAIM_MAX = 20
"""Chats per claim (DISPATCH §7)."""

SELF_FENCE_SHARE = 0.7
"""After this part of a lease without a successful beat, tools that must not run twice are cancelled."""

UNFOLDABLE_TRIES = 3
QUARANTINE_MS = 86_400_000
"""A log that cannot be folded three times is parked for a day; nothing is deleted (DESIGN §4.7)."""

CRASHED = "crashed"
"""The previous owner of a chat whose actor failed here by a mistake of ours: its death counts like a worker's."""

REMEMBERED_MAX = 10_000
"""Chats whose crashes or unreadable logs are remembered, the newest; a forgotten one starts to count anew."""

STORE_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often things happen (DISPATCH §7: lease 3.5 s, beat 1.1 s, sweep 0.4 s ± 50 %, measured together)."""

    lease_seconds: float = 3.5
    beat_seconds: float = 1.1
    sweep_seconds: float = 0.4
    max_chats: int = 5_000
    drain_seconds: float = 5.0

    @property
    def lease_ms(self) -> int:
        return int(self.lease_seconds * 1000)


class Host:
    """Runs until cancelled; `drain` gives every chat back first. No answer of the store ends it."""

    def __init__(self, place: Workplace, rhythm: Rhythm) -> None:
        self._place = place
        self._rhythm = rhythm
        self._actors: dict[str, Actor] = {}
        self._again: dict[str, str] = {}
        self._unfoldable: dict[str, int] = {}  # how often each was tried
        self._crashed: dict[str, None] = {}  # in the order of their crashes
        self._is_draining = False
        self._drained = anyio.Event()
        self._kept_at: dict[str, float] = {}  # by chat: when its lease was last known to begin
        self._beating: set[int] = set()  # buckets whose beat is on its way
        self._sweeping: set[int] = set()  # and those whose sweep is

    @property
    def name(self) -> str:
        return self._place.worker

    async def run(self) -> None:
        """Serve until cancelled. Trouble with the store pauses the host, it does not end it."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sweep_forever, tasks)
            tasks.start_soon(self._listen_to_bells, tasks)
            tasks.start_soon(self._listen_to_mail, tasks)
            tasks.start_soon(self._beat_forever, tasks)
            tasks.start_soon(self._fence_self)

    async def drain(self) -> int:
        """Give every chat back at its next safe point; returns how many were left when the time was up."""
        self._is_draining = True
        for actor in self._actors.values():
            actor.drain()
        with anyio.move_on_after(self._rhythm.drain_seconds):
            while self._actors:
                self._drained = anyio.Event()
                await self._drained.wait()
        for actor in self._actors.values():
            actor.lose()
        return len(self._actors)

    def _has_room(self) -> bool:
        return not self._is_draining and len(self._actors) < self._rhythm.max_chats

    async def _sweep_forever(self, tasks: TaskGroup) -> None:
        while True:
            if self._has_room():
                for bucket in range(self._place.store.buckets):  # one tick, so one pipeline
                    if bucket not in self._sweeping:
                        tasks.start_soon(self._sweep, bucket, tasks)
            await anyio.sleep(self._rhythm.sweep_seconds * random.uniform(0.5, 1.5))

    async def _sweep(self, bucket: int, tasks: TaskGroup) -> None:
        """One bucket; its trouble is not that of the others, nor do they wait for it."""
        self._sweeping.add(bucket)
        try:
            await self._claim(bucket, tasks)
        except Failed as trouble:
            self._note("claim", trouble)
            await anyio.sleep(STORE_PAUSE_SECONDS)
        finally:
            self._sweeping.discard(bucket)

    def _note(self, call: str, trouble: Failed) -> None:
        """That the store is away is expected; any other error is a mistake somewhere."""
        self._place.metrics.store_errors.labels(call).inc()
        if not isinstance(trouble, Unavailable):
            _log.error("store.failed", call=call, error=trouble.message)

    async def _listen_to_bells(self, tasks: TaskGroup) -> None:
        while True:
            try:
                async with self._place.store.bell() as bell:
                    while True:
                        if not self._has_room():
                            await anyio.sleep(self._rhythm.sweep_seconds)
                            continue
                        bucket = await bell.wait(1.0)
                        if bucket is None:
                            continue
                        if self._has_room():
                            await self._claim(bucket, tasks)
                        else:
                            await bell.put_back(bucket)  # it rang while we filled up, or began to drain
            except Failed as trouble:
                self._note("bell", trouble)
                await anyio.sleep(STORE_PAUSE_SECONDS)

    async def _listen_to_mail(self, tasks: TaskGroup) -> None:
        while True:
            try:
                async with self._place.store.mail(self._place.worker) as mail:
                    async for chat_id in mail:
                        if chat_id is None:
                            self._beat(tasks)  # rebuilt: the beat's answer tells what was missed
                        elif (actor := self._actors.get(chat_id)) is not None:
                            actor.notify()
            except Failed as trouble:
                self._note("mail", trouble)
                await anyio.sleep(STORE_PAUSE_SECONDS)

    async def _claim(self, bucket: int, tasks: TaskGroup) -> None:
        room = min(CLAIM_MAX, self._rhythm.max_chats - len(self._actors))
        if room <= 0:
            return
        asked_at = time.monotonic()
        claimed = await self._place.store.claim(bucket, self._place.worker, room, self._rhythm.lease_ms)
        for chat in claimed:
            self._kept_at[chat.chat_id] = asked_at
            self._adopt(chat, tasks)

    def _adopt(self, chat: Claimed, tasks: TaskGroup) -> None:
        """In the registry at once, so that beats cover what follows."""
        if chat.chat_id in self._actors:
            self._again[chat.chat_id] = chat.previous
            return
        previous = CRASHED if chat.chat_id in self._crashed else chat.previous
        self._crashed.pop(chat.chat_id, None)
        actor = Actor(self._place, chat.chat_id, previous)
        self._actors[chat.chat_id] = actor
        self._place.metrics.chats_active.set(len(self._actors))
        if self._is_draining:
            actor.drain()
        tasks.start_soon(self._host, actor, tasks)

    async def _host(self, actor: Actor, tasks: TaskGroup) -> None:
        # Its own task's context, handed down to all that the actor starts: every line inside says which chat it is.
        structlog.contextvars.bind_contextvars(chat_id=actor.chat_id)
        end = End.LOST
        try:
            end = await actor.run()
        except BaseException as wrong:  # the boundary of an actor: its chat comes back when the lease is over
            pass_on(wrong)
            _log.exception("actor.crashed", chat_id=actor.chat_id)
            self._crashed[actor.chat_id] = None
            _forget_oldest(self._crashed)
        finally:
            del self._actors[actor.chat_id]
            if actor.chat_id not in self._again:
                self._kept_at.pop(actor.chat_id, None)
            self._place.metrics.chats_active.set(len(self._actors))
            self._drained.set()
        if end is End.UNFOLDABLE:
            await self._set_aside(actor.chat_id)
        else:
            self._unfoldable.pop(actor.chat_id, None)
        if (previous := self._again.pop(actor.chat_id, None)) is not None:
            self._adopt(Claimed(actor.chat_id, previous), tasks)

    async def _set_aside(self, chat_id: str) -> None:
        """Try again in a second; after three times park the chat for a person to look at."""
        store, worker = self._place.store, self._place.worker
        tries = self._unfoldable.pop(chat_id, 0) + 1
        self._unfoldable[chat_id] = tries
        _forget_oldest(self._unfoldable)
        try:
            if tries < UNFOLDABLE_TRIES:
                await store.handover(chat_id, worker, 1_000)
                return
            await store.quarantine(chat_id, worker, await store.now_ms() + QUARANTINE_MS)
            self._place.metrics.quarantined.inc()
            _log.error("chat.quarantined", chat_id=chat_id)
        except Lost:
            return  # somebody else has it
        except Failed as trouble:
            _log.warning("chat.not_set_aside", chat_id=chat_id, error=trouble.message)  # it is, when the lease is over

    async def _beat_forever(self, tasks: TaskGroup) -> None:
        while True:
            await anyio.sleep(self._rhythm.beat_seconds)
            self._beat(tasks, self._beating)

    async def _fence_self(self) -> None:
        """Stop effects in time, by a clock of its own: a beat that hangs must not keep us from noticing. Each chat for
        itself, since the node of its bucket may be the only one that is away."""
        trusted_seconds = SELF_FENCE_SHARE * self._rhythm.lease_seconds
        while True:
            pause_seconds = self._rhythm.beat_seconds  # then the tools that began meanwhile
            now = time.monotonic()
            for chat_id, actor in self._actors.items():
                left_seconds = self._kept_at.get(chat_id, now) + trusted_seconds - now
                if left_seconds > 0:
                    pause_seconds = min(pause_seconds, left_seconds)
                else:
                    actor.stop_effects()
            await anyio.sleep(pause_seconds)

    def _beat(self, tasks: TaskGroup, but: Collection[int] = ()) -> None:
        """Each bucket for itself, all in one tick: one whose node does not answer keeps none of the others waiting."""
        by_bucket: dict[int, dict[str, Actor]] = {}
        for chat_id, actor in self._actors.items():
            by_bucket.setdefault(self._place.store.bucket_of(chat_id), {})[chat_id] = actor
        for bucket, actors in by_bucket.items():
            if bucket not in but:
                tasks.start_soon(self._beat_bucket, bucket, actors)

    async def _beat_bucket(self, bucket: int, actors: dict[str, Actor]) -> None:
        self._beating.add(bucket)
        started_at = time.monotonic()
        try:
            answers = await self._place.store.beat(self._place.worker, self._rhythm.lease_ms, list(actors))
        except Failed as trouble:
            _log.warning("beat.missed", chats=len(actors), bucket=bucket)
            self._note("beat", trouble)
            return
        finally:
            self._beating.discard(bucket)
        for chat_id, answer in answers.items():
            actor = actors[chat_id]
            if self._actors.get(chat_id) is not actor:
                continue  # it ended meanwhile; the next one of its chat has a claim of its own
            if answer is Beat.LOST:
                _log.warning("lease.lost", chat_id=chat_id)
                actor.lose()
                continue
            self._kept_at[chat_id] = max(self._kept_at.get(chat_id, 0.0), started_at)  # a later one may have overtaken
            if answer is Beat.MAIL:
                actor.notify()


def _forget_oldest(remembered: dict[str, Any]) -> None:  # Any: whatever is remembered of them
    while len(remembered) > REMEMBERED_MAX:
        del remembered[next(iter(remembered))]
