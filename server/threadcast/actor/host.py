"""The host of a worker process: finds chats with work, runs an actor for each, and keeps the leases.

The host learns of work in three ways (DISPATCH §5). A post rings the bell of its bucket. A sweep over all buckets finds
chats whose bell was lost or whose lease has ended, and owners that no longer listen (`silent_owners.py`). For a chat
that is already owned, an inbox signal or the answer of a heartbeat reports new commands. Leases only avoid double work;
fences and conditional appends keep the log consistent.
"""

import random
import time
from collections.abc import Collection, Sequence
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup

from threadcast.actor.actor import Actor
from threadcast.actor.claim_gate import LOOK_SECONDS, WAIT_SECONDS
from threadcast.actor.end import End
from threadcast.actor.former_owner import FormerOwner
from threadcast.actor.lease_timings import LeaseTimings
from threadcast.actor.run_slots import Rank
from threadcast.actor.silent_owners import SilentOwners
from threadcast.actor.worker_context import WorkerContext
from threadcast.base.append_pace import PACE
from threadcast.base.boundary import pass_on
from threadcast.store.ports import Beat, Claimed, Lost, WaitingRun
from threadcast_protocol.wire.errors import Failed, Unavailable

__all__ = ["Host"]

_log = structlog.get_logger()

CLAIM_MAX = 20
"""The largest number of chats in one claim (DISPATCH §7)."""

SELF_FENCE_SHARE = 0.7
"""Tools that must not run twice are cancelled after this share of a lease without a successful heartbeat."""

UNFOLDABLE_TRIES = 3
QUARANTINE_MS = 86_400_000
"""A chat is parked for a day after three failed attempts to fold its log; no data is deleted (DESIGN §4.7)."""

CRASHED = "crashed"
"""The name of the previous owner if the chat's actor crashed in this process: the crash counts like a worker's
death."""

REMEMBERED_MAX = 10_000
"""The maximum number of chats whose crashes or unreadable logs are remembered; the newest are kept. For a forgotten
chat, counting begins at zero again."""

STORE_PAUSE_SECONDS = 0.5


class Host:
    """Owns chats until it is cancelled. Call `drain` first to release every chat. Errors of the store do not end the
    host."""

    def __init__(self, context: WorkerContext, timings: LeaseTimings) -> None:
        self._context = context
        self._timings = timings
        self._actors: dict[str, Actor] = {}
        self._again: dict[str, Claimed] = {}
        self._unfoldable: dict[str, int] = {}  # The number of failed attempts to fold each chat's log.
        self._crashed: dict[str, None] = {}  # Chat ids, in the order of their crashes.
        self._is_draining = False
        self._drained = anyio.Event()
        self._kept_at: dict[str, float] = {}  # The last known start of each chat's lease, in monotonic seconds.
        self._beating: set[int] = set()  # Buckets whose heartbeat has no answer yet.
        self._sweeping: set[int] = set()  # The first bucket of each group whose sweep is not over.
        self._silent = SilentOwners(context.store, context.worker, timings.lease_seconds)
        self._tasks: TaskGroup | None = None
        context.slots.begin = self._begin_waiting
        context.slots.may_begin = lambda: self._tasks is not None and self._has_room()

    @property
    def name(self) -> str:
        return self._context.worker

    async def run(self) -> None:
        """Serve until cancelled. Errors of the store pause the host, but do not end it."""
        context = self._context
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._sweep_forever, tasks)
            tasks.start_soon(self._listen_to_bells, tasks)
            tasks.start_soon(self._listen_for_inbox_signals, tasks)
            tasks.start_soon(self._beat_forever, tasks)
            tasks.start_soon(self._fence_self)
            tasks.start_soon(self._look_at_load)
            tasks.start_soon(context.rests.run, context.store, context.cache, context.traces, context.metrics)

    async def drain(self) -> int:
        """Release every chat at its next safe point. Returns the number of chats that were still owned after
        `drain_seconds`."""
        self._is_draining = True
        for actor in self._actors.values():
            actor.drain()
        with anyio.move_on_after(self._context.limits.drain_seconds):
            while self._actors:
                self._drained = anyio.Event()
                await self._drained.wait()
        for actor in self._actors.values():
            actor.lose()
        return len(self._actors)

    def _is_open(self) -> bool:
        return not self._is_draining and len(self._actors) < self._context.limits.worker_max_chats

    def _has_room(self) -> bool:
        """Return whether the worker takes chats that have just become due."""
        gate, count = self._context.gate, len(self._actors)
        return self._is_open() and gate.takes_new(count) and gate.room(count) > 0

    async def _look_at_load(self) -> None:
        """Report the load of the process to the gate and the metrics. The lateness of this task is the loop's lag."""
        gate, metrics = self._context.gate, self._context.metrics
        while True:
            due_at = time.monotonic() + LOOK_SECONDS
            await anyio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            metrics.append_pause_seconds.set(PACE.seconds(len(self._actors)))
            gate.look(now, time.thread_time(), len(self._actors), now - due_at, PACE.store_delay_seconds)
            metrics.worker_load.set(gate.load)

    async def _sweep_forever(self, tasks: TaskGroup) -> None:
        while True:
            if self._is_open():
                self._context.slots.look()
                for group in self._context.store.bucket_groups:
                    if group[0] not in self._sweeping:
                        tasks.start_soon(self._sweep, group, tasks)
            await anyio.sleep(self._timings.sweep_seconds * random.uniform(0.5, 1.5))

    async def _sweep(self, group: Sequence[int], tasks: TaskGroup) -> None:
        """Claim chats, and look for dead owners, in those buckets of a group that need it. Other groups neither wait
        for this group nor are affected by its errors."""
        self._sweeping.add(group[0])
        try:
            found = dict(zip(group, await self._context.store.check_buckets(group), strict=True))
            for bucket in (bucket for bucket, status in found.items() if status.has_owners):
                tasks.start_soon(self._look, bucket, tasks)
            for bucket in (bucket for bucket, status in found.items() if status.has_left_rests):
                await self._context.rests.take_over(bucket, self._context.store)
            due = [bucket for bucket, status in found.items() if status.has_due]
            async with anyio.create_task_group() as claims:  # all claims are sent in one tick, so in one pipeline
                for bucket in due:
                    claims.start_soon(self._claim_due, bucket, tasks, len(due))
        except Failed as trouble:
            self._note("check", trouble)
            await anyio.sleep(STORE_PAUSE_SECONDS)
        finally:
            self._sweeping.discard(group[0])

    async def _claim_due(self, bucket: int, tasks: TaskGroup, claims_count: int) -> None:
        try:
            await self._claim(bucket, tasks, claims_count)
        except Failed as trouble:
            self._note("claim", trouble)
            await anyio.sleep(STORE_PAUSE_SECONDS)

    async def _look(self, bucket: int, tasks: TaskGroup) -> None:
        """Search one bucket for dead owners, and make their chats due."""
        try:
            for owner in await self._silent.look(bucket):
                tasks.start_soon(self._judge, bucket, owner, tasks)
        except Failed as trouble:
            self._note("look", trouble)

    async def _judge(self, bucket: int, owner: str, tasks: TaskGroup) -> None:
        try:
            if await self._silent.judge(bucket, owner):
                self._context.metrics.owners_silent.inc()
                _log.info("owner.silent", owner=owner, bucket=bucket)
                await self._claim(bucket, tasks)
        except Failed as trouble:
            self._note("look", trouble)

    def _note(self, call: str, trouble: Failed) -> None:
        """Count a failed call. An unavailable store is expected; any other error is logged."""
        self._context.metrics.store_errors.labels(call).inc()
        if not isinstance(trouble, Unavailable):
            _log.error("store.failed", call=call, error=trouble.message)

    async def _listen_to_bells(self, tasks: TaskGroup) -> None:
        while True:
            try:
                async with self._context.store.bell() as bell:
                    while True:
                        if not self._has_room():
                            await anyio.sleep(self._timings.sweep_seconds)
                            continue
                        bucket = await bell.wait(1.0)
                        if bucket is None:
                            continue
                        if self._has_room() and not self._silent.is_unheard(bucket):
                            await self._claim(bucket, tasks)
                        else:
                            await bell.put_back(bucket)  # the worker has filled up or begun to drain meanwhile
                            await anyio.sleep(self._timings.sweep_seconds)
            except Failed as trouble:
                self._note("bell", trouble)
                await anyio.sleep(STORE_PAUSE_SECONDS)

    async def _listen_for_inbox_signals(self, tasks: TaskGroup) -> None:
        while True:
            try:
                async with self._context.store.inbox_signals(self._context.worker) as signals:
                    self._silent.signals = signals
                    async for chat_id in signals:
                        if chat_id is None:
                            self._beat(tasks)  # signals may be lost; the answers of heartbeats report them
                        elif (actor := self._actors.get(chat_id)) is not None:
                            actor.notify()
            except Failed as trouble:
                self._note("mail", trouble)
                await anyio.sleep(STORE_PAUSE_SECONDS)

    async def _claim(self, bucket: int, tasks: TaskGroup, claims_count: int = 1) -> None:
        """Claim chats of a bucket. `claims_count` claims share the number of chats that the worker's load allows, but
        each claim may take at least one chat. A worker whose load is too high takes only chats that other workers have
        not claimed for some time."""
        gate, count = self._context.gate, len(self._actors)
        room = min(CLAIM_MAX, self._context.limits.worker_max_chats - count)
        if room <= 0 or self._silent.is_unheard(bucket):
            return
        room = max(1, min(room, gate.room(count) // claims_count))
        waited_ms = 0 if gate.takes_new(count) else int(1_000 * WAIT_SECONDS)
        asked_at = time.monotonic()
        claimed = await self._context.store.claim(bucket, self._context.worker, room, self._timings.lease_ms, waited_ms)
        for chat in claimed:
            self._kept_at[chat.chat_id] = asked_at
            if chat.waiting is None or self._has_slot(chat.chat_id, chat.waiting):
                self._adopt(chat, tasks)
            else:
                tasks.start_soon(self._put_back, chat.chat_id, chat.waiting)

    def _has_slot(self, chat_id: str, run: WaitingRun) -> bool:
        return self._context.slots.is_free(chat_id, run.principal_id, Rank.parse(run.rank))

    async def _put_back(self, chat_id: str, run: WaitingRun) -> None:
        """Release a claimed chat whose run waits for a slot, and remember it. No entry is written."""
        slots = self._context.slots
        check_ms = slots.check_ms(run.principal_id)
        try:
            await self._context.store.handover(chat_id, self._context.worker, check_ms)
        except Lost:
            return
        except Failed as trouble:  # the chat is offered again when the lease has ended
            self._note("handover", trouble)
            return
        finally:
            self._kept_at.pop(chat_id, None)
        slots.wait(chat_id, run.principal_id, Rank.parse(run.rank), check_ms)

    def _begin_waiting(self, chat_id: str) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(self._claim_waiting, chat_id, self._tasks)

    async def _claim_waiting(self, chat_id: str, tasks: TaskGroup) -> None:
        """Claim a chat whose run has got a slot."""
        asked_at = time.monotonic()
        is_ours = False
        try:
            is_ours = await self._context.store.claim_chat(chat_id, self._context.worker, self._timings.lease_ms)
        except Failed as trouble:
            self._note("claim", trouble)
        finally:
            if not is_ours:  # another worker has the chat, or the chat no longer waits
                self._context.slots.free(chat_id)
        if is_ours:
            self._kept_at[chat_id] = asked_at
            self._adopt(Claimed(chat_id, ""), tasks)

    def _adopt(self, chat: Claimed, tasks: TaskGroup) -> None:
        """Start an actor for `chat`. The chat is registered at once, so that heartbeats renew its lease from the
        beginning."""
        if chat.chat_id in self._actors:
            self._again[chat.chat_id] = chat
            return
        previous = CRASHED if chat.chat_id in self._crashed else chat.previous
        self._crashed.pop(chat.chat_id, None)
        former = FormerOwner(
            previous, has_begun=chat.has_begun or previous == CRASHED, lease_left_seconds=chat.lease_left_ms / 1000
        )
        actor = Actor(self._context, chat.chat_id, former)
        self._actors[chat.chat_id] = actor
        self._context.rests.forget(chat.chat_id)
        self._context.metrics.chats_active.set(len(self._actors))
        if self._is_draining:
            actor.drain()
        tasks.start_soon(self._host, actor, tasks)

    async def _host(self, actor: Actor, tasks: TaskGroup) -> None:
        # All tasks of the actor inherit this context, so that each of their log lines has the chat's id.
        structlog.contextvars.bind_contextvars(chat_id=actor.chat_id)
        end = End.LOST
        try:
            end = await actor.run()
        except BaseException as wrong:  # the boundary of an actor: its chat is offered again when the lease has ended
            pass_on(wrong)
            _log.exception("actor.crashed", chat_id=actor.chat_id)
            self._crashed[actor.chat_id] = None
            _forget_oldest(self._crashed)
        finally:
            del self._actors[actor.chat_id]
            if end is not End.RELEASED:
                self._context.slots.free(actor.chat_id)
            if actor.chat_id not in self._again:
                self._kept_at.pop(actor.chat_id, None)
            self._context.metrics.chats_active.set(len(self._actors))
            self._drained.set()
        if end is End.UNFOLDABLE:
            await self._set_aside(actor.chat_id)
        else:
            self._unfoldable.pop(actor.chat_id, None)
        if (claimed := self._again.pop(actor.chat_id, None)) is not None:
            self._adopt(claimed, tasks)

    async def _set_aside(self, chat_id: str) -> None:
        """Release the chat for a second; after three attempts, park the chat for a day, so that a person can examine
        it."""
        store, worker = self._context.store, self._context.worker
        self._unfoldable[chat_id] = tries = self._unfoldable.pop(chat_id, 0) + 1
        _forget_oldest(self._unfoldable)
        try:
            if tries < UNFOLDABLE_TRIES:
                await store.handover(chat_id, worker, 1_000)
                return
            await store.quarantine(chat_id, worker, await store.now_ms() + QUARANTINE_MS)
            self._context.metrics.quarantined.inc()
            _log.error("chat.quarantined", chat_id=chat_id)
        except Lost:
            return  # another worker has the chat
        except Failed as trouble:  # the chat is offered again when the lease has ended
            _log.warning("chat.not_set_aside", chat_id=chat_id, error=trouble.message)

    async def _beat_forever(self, tasks: TaskGroup) -> None:
        while True:
            await anyio.sleep(self._timings.beat_seconds)
            self._beat(tasks, self._beating)

    async def _fence_self(self) -> None:
        """Call `stop_effects` for each chat whose lease may soon end. This task has its own timer, so that a hanging
        heartbeat cannot delay it. Each chat is checked separately, because only one node of the store may be
        unreachable."""
        trusted_seconds = SELF_FENCE_SHARE * self._timings.lease_seconds
        while True:
            pause_seconds = self._timings.beat_seconds  # then check again, for tools that began meanwhile
            now = time.monotonic()
            for chat_id, actor in self._actors.items():
                left_seconds = self._kept_at.get(chat_id, now) + trusted_seconds - now
                if left_seconds > 0:
                    pause_seconds = min(pause_seconds, left_seconds)
                else:
                    actor.stop_effects()
            await anyio.sleep(pause_seconds)

    def _beat(self, tasks: TaskGroup, but: Collection[int] = ()) -> None:
        """Send a heartbeat for each bucket, all in the same tick. Buckets whose nodes answer do not wait for the
        others."""
        by_bucket: dict[int, dict[str, Actor]] = {}
        for chat_id, actor in self._actors.items():
            by_bucket.setdefault(self._context.store.bucket_of(chat_id), {})[chat_id] = actor
        for bucket, actors in by_bucket.items():
            if bucket not in but:
                tasks.start_soon(self._beat_bucket, bucket, actors)

    async def _beat_bucket(self, bucket: int, actors: dict[str, Actor]) -> None:
        self._beating.add(bucket)
        started_at = time.monotonic()
        try:
            answers = await self._context.store.beat(self._context.worker, self._timings.lease_ms, list(actors))
        except Failed as trouble:
            _log.warning("beat.missed", chats=len(actors), bucket=bucket)
            self._note("beat", trouble)
            return
        finally:
            self._beating.discard(bucket)
        for chat_id, answer in answers.items():
            actor = actors[chat_id]
            if self._actors.get(chat_id) is not actor:
                continue  # the actor ended meanwhile; the chat's next actor has its own claim
            if answer is Beat.LOST:
                _log.warning("lease.lost", chat_id=chat_id)
                actor.lose()
                continue
            # The maximum is taken, because a later heartbeat may have been answered first.
            self._kept_at[chat_id] = max(self._kept_at.get(chat_id, 0.0), started_at)
            if answer is Beat.INBOX:
                actor.notify()


def _forget_oldest(remembered: dict[str, Any]) -> None:  # Any, because the values are not read
    while len(remembered) > REMEMBERED_MAX:
        del remembered[next(iter(remembered))]
