"""The in-memory store of a schedule, and each process's unreliable way to it.

`SimStore` is the real `MemoryStore` with one bucket, a clock that may step, a memory of every entry that was ever
trimmed away, and replicas to fall back to. A `Way` is what a process holds: calls take time, are refused, lose their
reply, arrive late or twice, as the schedule draws. A call that was sent is carried out even when its sender dies. It
knows no chat; `world.py` says what goes wrong. The rule: a step of the store is atomic, whatever happens to its call.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from protocol.entries import RawEntry
from protocol.errors import Failed, Unavailable
from protocol.ids import EntryId, Head
from server.store.listener import Listener
from server.store.memory import MemoryStore
from server.store.memory_channels import _Switchboard
from server.store.memory_records import Bucket, Chat
from server.store.port import (
    Appended,
    AppendRequest,
    Beat,
    ChatMeta,
    Claimed,
    DueBell,
    Fenced,
    InboxEntry,
    Loaded,
    Lost,
    Posted,
    PostRequest,
    Released,
    Taken,
)
from tests.sim.loop import Process, at_once
from tests.sim.tally import COUNTS
from tests.sim.witness import saw

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["Replica", "SimStore", "Way"]

_T = TypeVar("_T")

DENIED_WHEN_FULL = frozenset({"post", "append", "take", "claim", "dead_letter"})
"""Scripts without `allow-oom`: Redis refuses them when its memory is full (DISPATCH §4)."""


class _Wires(_Switchboard):
    """Channels that lose messages. PUBLISH counts a listener that never hears."""

    def __init__(self, world: "World") -> None:
        super().__init__()
        self._world = world

    def publish(self, channel: str, payload: bytes) -> int:
        if self._world.loses("mail" if channel.startswith("mail:") else "publish"):
            self._world.note("outside", "lost", channel, "", "")
            return len(self._listeners.get(channel, ()))
        return super().publish(channel, payload)


class Replica:
    """All that Redis held at one moment."""

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
        own=dict(bucket.own),
        chats={owner: dict(chats) for owner, chats in bucket.chats.items()},
    )


class SimStore(MemoryStore):
    """`history`: the untrimmed log of each chat, as far as it was not rolled back; `former`: of its lives before."""

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
        """Without a turn of the loop: the way here already took its time."""
        chat = self._chats.get(chat_id)
        if chat is None:
            chat = Chat()
        now = self._now()
        if chat.expires_at_ms is not None:
            chat.expire(now)
        return chat, self._buckets[0], now

    def _publish(self, chat_id: str, entry: RawEntry) -> None:
        self.history.setdefault(chat_id, []).append(entry)
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

    async def take(self, chat_id: str, worker: str, why: str) -> Taken:
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
        """What was written since is gone."""
        self._chats = {name: _copy(chat) for name, chat in replica.chats.items()}
        self._buckets = [_copy_bucket(replica.bucket)]
        self.history = {name: list(entries) for name, entries in replica.history.items()}
        self.dead = list(replica.dead)


class _Call(Generic[_T]):
    """A call on its way to the store. It belongs to nobody: its sender's death does not keep it from arriving."""

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
        """The step itself, at the store; what is told of it depends on the fault."""
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
        elif fault == "dies" and process.is_dead:  # people who have not heard of it asked a dead process
            self.reply(Unavailable("the web process does not answer"))
        elif fault == "dies":
            world.kill(process)


class Way(MemoryStore):
    """What one process holds of the store. It has none of `MemoryStore`'s own data; what is not overridden here is
    not used by the parts under test."""

    def __init__(self, world: "World", process: Process, *, has_clients: bool = False) -> None:
        """`has_clients`: people outside of the process wait for its calls, and hear when it dies."""
        self._world = world
        self._process = process
        self._house = world.store
        self._open: list[tuple[str, Listener]] = []
        self._asked: dict[asyncio.Future[Any], None] = {}  # in order; Any: each call has its own answer
        self._has_clients = has_clients
        self.is_cut = False

    @property
    def buckets(self) -> int:
        return 1

    def bucket_of(self, chat_id: str) -> int:
        return 0

    async def _call(self, name: str, what: str, step: Callable[[], Coroutine[Any, Any, _T]]) -> _T:  # Any: asyncio's
        """Send the call; its fate is the schedule's."""
        world = self._world
        if world.is_closing:
            raise asyncio.CancelledError
        answer: asyncio.Future[_T] = world.loop.create_future()
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
        """The process is gone: its connections close."""
        for channel, listener in self._open:
            self._house._switchboard.leave(channel, listener)
        self._open.clear()
        for answer in list(self._asked):
            if not answer.done():
                answer.set_exception(Unavailable("the web node is gone"))

    async def post(self, request: PostRequest) -> Posted:
        return await self._call("post", f"{request.request_id} {request.nonce}", partial(self._house.post, request))

    async def meta(self, chat_id: str) -> ChatMeta | None:
        return await self._call("meta", chat_id, partial(self._house.meta, chat_id))

    async def delete(self, chat_id: str, owner: str, nonce: str) -> bool:
        return await self._call("delete", chat_id, partial(self._house.delete, chat_id, owner, nonce))

    async def claim(self, bucket: int, worker: str, limit: int, lease_ms: int) -> list[Claimed]:
        return await self._call("claim", "", partial(self._house.claim, bucket, worker, limit, lease_ms))

    async def take(self, chat_id: str, worker: str, why: str) -> Taken:
        return await self._call("take", why, partial(self._house.take, chat_id, worker, why))

    async def beat(self, worker: str, lease_ms: int, chats: Sequence[str]) -> dict[str, Beat]:
        return await self._call("beat", "", partial(self._house.beat, worker, lease_ms, chats))

    async def release(self, chat_id: str, worker: str, head: str, when_ms: int | None) -> Released:
        step = partial(self._house.release, chat_id, worker, head, when_ms)
        return await self._call("release", "" if when_ms is None else f"until {when_ms}", step)

    async def handover(self, chat_id: str, worker: str, delay_ms: int) -> None:
        await self._call("handover", f"{delay_ms}", partial(self._house.handover, chat_id, worker, delay_ms))

    async def quarantine(self, chat_id: str, worker: str, until_ms: int) -> None:
        await self._call("quarantine", "", partial(self._house.quarantine, chat_id, worker, until_ms))

    async def now_ms(self) -> int:
        return await self._call("now_ms", "", self._house.now_ms)

    async def append(self, request: AppendRequest) -> Appended:
        what = f"{request.head} after {request.expected}"
        return await self._call("append", what, partial(self._house.append, request))

    async def load(self, chat_id: str) -> Loaded:
        loaded = await self._call("load", "", partial(self._house.load, chat_id))
        COUNTS["part of a log loaded"] += not loaded.is_whole
        return loaded

    async def read_entry(self, chat_id: str, entry_id: EntryId) -> RawEntry | None:
        return await self._call("read_entry", str(entry_id), partial(self._house.read_entry, chat_id, entry_id))

    async def read_log(
        self,
        chat_id: str,
        through: EntryId | None = None,
        *,
        after: EntryId | None = None,
        newest: bool = False,
    ) -> list[RawEntry]:
        step = partial(self._house.read_log, chat_id, through, after=after, newest=newest)
        return await self._call("read_log", "", step)

    async def read_inbox(self, chat_id: str, limit: int) -> list[InboxEntry]:
        return await self._call("read_inbox", "", partial(self._house.read_inbox, chat_id, limit))

    async def dead_letter(self, chat_id: str, entry: InboxEntry, reason: str) -> None:
        await self._call("dead_letter", entry.request_id, partial(self._house.dead_letter, chat_id, entry, reason))

    async def heads(self, chat_ids: Sequence[str]) -> list[str]:
        return await self._call("heads", "", partial(self._house.heads, chat_ids))

    @asynccontextmanager
    async def bell(self) -> AsyncIterator[DueBell]:
        yield _Bell(self._house)

    @asynccontextmanager
    async def _listen(self, channel: str) -> AsyncIterator[Listener]:
        listener = self._house._switchboard.join(channel)
        here = (channel, listener)
        self._open.append(here)
        try:
            yield listener
        finally:
            if here in self._open:
                self._open.remove(here)
                self._house._switchboard.leave(channel, listener)


class _Bell:
    def __init__(self, house: SimStore) -> None:
        self._house = house

    async def wait(self, timeout_seconds: float) -> int | None:
        return await self._house.pop_bell([0], 3.0)  # longer than the product's: nothing but turns of the loop is saved

    async def put_back(self, bucket: int) -> None:
        self._house.ring(bucket)
