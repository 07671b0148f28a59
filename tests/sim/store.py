"""The in-memory store of a schedule, and each process's unreliable connection to it.

`SimStore` is the real `MemoryStore` with one bucket, a clock that may step, a copy of every trimmed entry, and replicas
that can replace it. A `Way` is the connection that a process holds: its calls take time, are refused, lose their reply,
arrive late or twice, as the schedule decides at random. A call that was sent is carried out even when the process that
sent it dies. `world.py` decides about failures. A step of the store is atomic, even if its call fails or is cancelled.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio

from tests.sim.loop import Process, at_once
from tests.sim.tally import COUNTS
from tests.sim.witness import saw
from threadcast.chat.entries import RawEntry
from threadcast.store.memory.channels import _Switchboard
from threadcast.store.memory.records import Bucket, Chat
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import (
    Appended,
    AppendRequest,
    Claimed,
    Compacted,
    DueBell,
    EndedLeases,
    Fenced,
    Loaded,
    Lost,
    Posted,
    PostRequest,
    Taken,
)
from threadcast.store.redis.listener import Listener
from threadcast_protocol.wire.errors import Failed, Unavailable
from threadcast_protocol.wire.ids import Head

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["Replica", "SimStore", "Way"]

_T = TypeVar("_T")

DENIED_WHEN_FULL = frozenset({"post", "append", "take", "claim", "dead_letter"})
"""Scripts without `allow-oom`: Redis refuses such scripts when its memory is full (DISPATCH §4)."""


class _Wires(_Switchboard):
    """Channels that lose messages. If a message is lost, PUBLISH still counts its subscribers."""

    def __init__(self, world: "World") -> None:
        super().__init__()
        self._world = world

    def publish(self, channel: str, payload: bytes) -> int:
        if self._world.loses("mail" if channel.startswith("mail:") else "publish"):
            self._world.note("outside", "lost", channel, "", "")
            return len(self._listeners.get(channel, ()))
        return super().publish(channel, payload)


class Replica:
    """Everything that Redis held at one moment."""

    def __init__(self, store: "SimStore") -> None:
        self.chats = {name: _copy(chat) for name, chat in store._chats.items()}
        self.bucket = _copy_bucket(store._buckets[0])
        self.history = {name: list(entries) for name, entries in store.history.items()}
        self.dead = list(store.dead)


def _copy(chat: Chat) -> Chat:
    return replace(
        chat,
        log=list(chat.log),
        inbox=dict(chat.inbox),
        meta=dict(chat.meta),
        seen=dict(chat.seen),
        seen_old=dict(chat.seen_old),
    )


def _copy_bucket(bucket: Bucket) -> Bucket:
    return replace(
        bucket,
        due=dict(bucket.due),
        rests=dict(bucket.rests),
        own=dict(bucket.own),
        owners=dict(bucket.owners),
        chats={owner: dict(chats) for owner, chats in bucket.chats.items()},
    )


class SimStore(MemoryStore):
    """`history` holds the untrimmed log of each chat, without entries that were rolled back; `former` holds the logs of
    each chat's earlier lives."""

    def __init__(self, world: "World") -> None:
        super().__init__(world.store_ms)
        self._world = world
        self._buckets = [Bucket()]
        self._switchboard = _Wires(world)
        self.history: dict[str, list[RawEntry]] = {}
        self.former: list[RawEntry] = []
        self._deleted_by: set[str] = set()

    @property
    def buckets(self) -> int:
        return 1

    def bucket_of(self, chat_id: str) -> int:
        return 0

    async def _arrive(self, chat_id: str = "") -> tuple[Chat, Bucket, int]:
        """This method does not wait, because the delay of the call has already passed."""
        chat = self._chats.get(chat_id)
        if chat is None:
            chat = Chat()
        now = self._now()
        if chat.expires_at_ms is not None:
            chat.expire(now)
        return chat, self._buckets[0], now

    def _publish(self, chat_id: str, entry: RawEntry) -> None:
        self.history.setdefault(chat_id, []).append(entry)
        if self._world.plan.mix.agents:
            self._world.book.take(entry)
        super()._publish(chat_id, entry)
        if not self._world.plan.is_watched and (entry.acks or b"pause_required" in entry.events):
            self._world.tell_soon(entry)

    async def append(self, request: AppendRequest) -> Appended:
        chat = self.chat(request.chat_id)
        held, waiting = len(chat.log), list(chat.inbox)
        answer = await super().append(request)
        if answer is Appended.OK and [inbox_id for inbox_id, _ in request.consumed] != waiting[: len(request.consumed)]:
            self._world.fail(f"{request.consumed} was taken up before what was accepted earlier: {waiting}")
        if len(self.chat(request.chat_id).log) < held:
            COUNTS["trim"] += 1
        return answer

    async def claim(self, bucket: int, worker: str, limit: int, lease_ms: int, waited_ms: int = 0) -> list[Claimed]:
        claimed = await super().claim(bucket, worker, limit, lease_ms, waited_ms)
        self._world.silence.claimed(worker, claimed)
        return claimed

    async def end_leases(self, bucket: int, worker: str, owner: str, cursor: str) -> EndedLeases:
        ended = await super().end_leases(bucket, worker, owner, cursor)
        if ended.count:
            self._world.silence.judged(worker, owner)
        return ended

    async def left_rests(self, bucket: int, limit: int, again_ms: int) -> list[str]:
        left = await super().left_rests(bucket, limit, again_ms)
        COUNTS["log left by another worker"] += len(left)
        return left

    async def compact(self, chat_id: str, head: str, compacted: Compacted | None) -> bool:
        was_compacted = self.chat(chat_id).is_compacted
        is_done = await super().compact(chat_id, head, compacted)
        COUNTS["log compacted" if is_done else "log to compact has grown"] += 1
        COUNTS["compaction repeated"] += is_done and was_compacted
        return is_done

    async def take(self, chat_id: str, worker: str, why: str) -> Taken:
        self._world.silence.takes(worker, why)
        taken = await super().take(chat_id, worker, why)
        floor = self.former[-1].entry_id if self.former else None
        if floor is not None and Head.parse(taken.head).entry_id <= floor and not self._world.rollbacks:
            self._world.fail(f"{taken.head} begins a life below {floor}, where the one before ended")
        return taken

    async def post(self, request: PostRequest) -> Posted:
        was_deleted = "deleted" in self.chat(request.chat_id).meta
        posted = await super().post(request)
        if was_deleted and "deleted" not in self.chat(request.chat_id).meta:
            COUNTS["chat made again"] += 1
        return posted

    async def delete(self, chat_id: str, owner: str, nonce: str) -> bool:
        had = "deleted" not in self.chat(chat_id).meta
        gone = await super().delete(chat_id, owner, nonce)
        if had and "deleted" in self.chat(chat_id).meta:
            if nonce in self._deleted_by:
                self._world.fail(f"the delete {nonce} took effect a second time")
            self._deleted_by.add(nonce)
            self.former += self.history.pop(chat_id, [])
            self._world.deletes += 1
            COUNTS["chat deleted"] += 1
        return gone

    def ring(self, bucket: int) -> None:
        if not self._world.loses("bell"):
            super().ring(bucket)

    def chat(self, chat_id: str) -> Chat:
        return self._chats.get(chat_id) or Chat()

    @property
    def bucket(self) -> Bucket:
        return self._buckets[0]

    def restore(self, replica: Replica) -> None:
        """Restore the replica's data: all data that was written since the replica was made is lost."""
        self._chats = {name: _copy(chat) for name, chat in replica.chats.items()}
        self._buckets = [_copy_bucket(replica.bucket)]
        self.history = {name: list(entries) for name, entries in replica.history.items()}
        self.dead = list(replica.dead)


class _Call(Generic[_T]):
    """A call on its way to the store. The call belongs to no process, so it arrives even if its sender dies."""

    __slots__ = ("_answer", "_name", "_process", "_step", "_what", "_world")

    def __init__(
        self,
        world: "World",
        process: Process,
        name: str,
        what: str,
        step: Callable[[], Coroutine[Any, Any, _T]],  # Any: asyncio's
        answer: "asyncio.Future[_T]",
    ) -> None:
        self._world = world
        self._process = process
        self._name = name
        self._what = what
        self._step = step
        self._answer = answer

    def reply(self, trouble: Exception) -> None:
        if not self._answer.done():
            self._answer.set_exception(trouble)

    def carry(self, fault: str) -> None:
        """Carry out the step at the store; the fault decides which answer the caller gets."""
        world, process = self._world, self._process
        if world.is_full and self._name in DENIED_WHEN_FULL:
            world.note(process.name, self._name, self._what, "full", "OOM")
            self.reply(Unavailable("the store's memory is full"))
            return
        trouble: Exception | None = None
        value: _T | None = None
        try:
            value = at_once(self._step())
        except (Fenced, Lost, Failed) as refused:
            trouble = refused
        saw(world, process, self._name, self._what, fault, trouble, value)
        if fault in ("", "twice", "slow"):
            if trouble is not None:
                self.reply(trouble)
            elif not self._answer.done():
                self._answer.set_result(value)  # type: ignore[arg-type]  # without trouble it is the step's own
        elif fault == "lost":
            world.later(world.draw_between(0.05, 0.4), self.reply, Unavailable("the store did not answer in time"))
        elif fault == "dies" and process.is_dead:  # clients did not notice the process's death, and called it
            self.reply(Unavailable("the web process does not answer"))
        elif fault == "dies":
            world.kill(process)


class Way(MemoryStore):
    """The store as one process sees it. The object holds no data of a `MemoryStore`; the parts under test use only the
    methods that this class overrides."""

    def __init__(self, world: "World", process: Process, *, has_clients: bool = False) -> None:
        """With `has_clients`, clients outside of the process wait for its calls, and get an error when the process
        dies."""
        self._world = world
        self._process = process
        self._harness = world.store
        self._open: list[_Line] = []
        self._asked: dict[asyncio.Future[Any], None] = {}  # in order; Any: each call has its own answer
        self._has_clients = has_clients
        self.is_cut = False

    @property
    def buckets(self) -> int:
        return 1

    def bucket_of(self, chat_id: str) -> int:
        return 0

    async def _call(self, name: str, what: str, step: Callable[[], Coroutine[Any, Any, _T]]) -> _T:  # Any: asyncio's
        """Send the call; the schedule decides its fate."""
        world = self._world
        if world.is_closing:
            raise asyncio.CancelledError
        answer: asyncio.Future[_T] = world.loop.create_future()
        if self._process.is_dead and not self._has_clients:  # the call of a task that a live process has woken
            return await answer
        call = _Call(world, self._process, name, what, step, answer)
        fault = "refused" if self.is_cut else world.draw(name)
        there = world.latency()
        if not fault:
            world.later(there, call.carry, "")
        elif fault == "refused":
            world.note(self._process.name, name, what, fault, "Unavailable")
            world.later(there, call.reply, Unavailable("the store does not answer"))
        elif fault == "late":
            world.later(world.draw_between(0.1, 0.3), call.reply, Unavailable("the store did not answer in time"))
            world.later(world.draw_between(0.2, 2.5), call.carry, "late")
        elif fault == "slow":
            world.later(world.draw_between(0.3, 2.0), call.carry, "slow")
        else:
            world.later(there, call.carry, fault)
            if fault == "twice":
                world.later(there + world.draw_between(0.0, 2.0), call.carry, "again")
        if not self._has_clients:
            return await answer
        self._asked[answer] = None
        try:
            return await answer
        finally:
            self._asked.pop(answer, None)

    def hang_up(self) -> None:
        """Close the connections of a process that has ended."""
        for line in self._open:
            self._disconnect(line)
        self._open.clear()
        for answer in list(self._asked):
            if not answer.done():
                answer.set_exception(Unavailable("the web node is gone"))

    async def load(self, chat_id: str) -> Loaded:
        loaded = await self._call("load", "", partial(self._harness.load, chat_id))
        COUNTS["part of a log loaded"] += not loaded.is_whole
        return loaded

    @asynccontextmanager
    async def bell(self) -> AsyncIterator[DueBell]:
        yield _Bell(self._harness)

    @asynccontextmanager
    async def _listen(self, channel: str, woken: Callable[[], None] | None = None) -> AsyncIterator[Listener]:
        line = _Line(channel, self._harness._switchboard.join(channel, woken))
        line.listener.whole_since -= self._world.silence.settled_seconds()
        self._open.append(line)
        try:
            yield line.listener
        finally:
            if line in self._open:
                self._open.remove(line)
                self._disconnect(line)

    def _disconnect(self, line: "_Line") -> None:
        if line.is_connected:
            line.is_connected = False
            if line.channel.startswith("mail:"):
                self._world.silence.lost(self._process.name)
            self._harness._switchboard.leave(line.channel, line.listener)

    def lose_channels(self, told_after: float, back_after: float) -> None:
        """The store closes the connection of the channels. The process notices the loss after `told_after` seconds, and
        has a new connection `back_after` seconds later."""
        for line in self._open:
            if line.is_connected:
                self._disconnect(line)
                self._world.background(self._come_back(line, told_after, back_after), self._process)

    async def _come_back(self, line: "_Line", told_after: float, back_after: float) -> None:
        await anyio.sleep(told_after)
        line.listener.lose((line.channel.encode(),))
        await anyio.sleep(back_after)
        if line in self._open:
            line.is_connected = True
            self._harness._switchboard.connect(line.channel, line.listener)
            self._world.silence.heard(self._process.name)


class _Line:
    """A channel and its listener; the connection may be lost."""

    def __init__(self, channel: str, listener: Listener) -> None:
        self.channel = channel
        self.listener = listener
        self.is_connected = True


def _nothing(*_: object, **__: object) -> str:
    return ""


_CALLS: dict[str, Callable[..., str]] = {
    "post": lambda request: f"{request.request_id} {request.nonce}",
    "meta": lambda chat_id: chat_id,
    "delete": lambda chat_id, owner, nonce: chat_id,
    "check_buckets": _nothing,
    "claim": _nothing,
    "silent_owners": _nothing,
    "end_leases": lambda bucket, worker, owner, cursor: owner,
    "claim_chat": lambda chat_id, worker, lease_ms: "",
    "take": lambda chat_id, worker, why: why,
    "beat": _nothing,
    "release": lambda chat_id, worker, head, when_ms, left_ms: "" if when_ms is None else f"until {when_ms}",
    "left_rests": _nothing,
    "compact": lambda chat_id, head, compacted: "left as it is" if compacted is None else "",
    "handover": lambda chat_id, worker, delay_ms: f"{delay_ms}",
    "quarantine": _nothing,
    "now_ms": _nothing,
    "append": lambda request: f"{request.head} after {request.expected}",
    "read_entry": lambda chat_id, entry_id: str(entry_id),
    "read_log": _nothing,
    "read_history": _nothing,
    "read_inbox": _nothing,
    "dead_letter": lambda chat_id, entry, reason: entry.request_id,
    "heads": _nothing,
}
"""Calls that a `Way` only forwards, each with the part of its arguments that the history records."""


def _passed_on(name: str, describe: Callable[..., str]) -> Callable[..., Any]:  # Any: as the call
    async def call(self: Way, *args: Any, **named: Any) -> Any:
        step = partial(getattr(self._harness, name), *args, **named)
        return await self._call(name, describe(*args, **named), step)

    return call


for _name, _describe in _CALLS.items():
    setattr(Way, _name, _passed_on(_name, _describe))


class _Bell:
    def __init__(self, harness: SimStore) -> None:
        self._harness = harness

    async def wait(self, timeout_seconds: float) -> int | None:
        return await self._harness.pop_bell([0], 3.0)  # a longer wait than the product's saves turns of the loop

    async def put_back(self, bucket: int) -> None:
        self._harness.ring(bucket)
