"""Each safety rule, switched off in the real code: the search must notice each missing rule, or the search proves
nothing.

A mutation replaces one function of the product, or one step of the in-memory store, by a version that a careless author
might have written. A mutation applies only inside `switched_off` (`rules.py`). `search.py` counts the seeds up to the
first that fails. A mutation removes one protection, and leaves every other protection in place.
"""

from collections.abc import Callable
from typing import Any

from anyio.abc import TaskGroup
from msgspec.structs import replace

from tests.sim.agent_mutations import AGENT_RULES
from tests.sim.rest_mutations import REST_RULES
from tests.sim.rules import Put, Rule
from tests.sim.store import SimStore, Way
from threadcast.actor import actor as actor_module
from threadcast.actor import silent_owners
from threadcast.actor.actor import Actor
from threadcast.actor.checkpoint_policy import CheckpointPolicy
from threadcast.actor.former_owner import FormerOwner
from threadcast.actor.silent_owners import SilentOwners
from threadcast.actor.state_cache import Cached, StateCache
from threadcast.actor.writer import Writer
from threadcast.agent_loop import recovery
from threadcast.agent_loop.history.kept_view import KeptView
from threadcast.chat import decider
from threadcast.chat.entries import Fence, RawEntry
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast.fanout.hub import Hub
from threadcast.fanout.relay import Relay
from threadcast.store import load
from threadcast.store.load import extent_of, fold_checked, fold_loaded
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import (
    Appended,
    AppendRequest,
    Beat,
    EndedLeases,
    InboxEntry,
    LogMessage,
    Lost,
    Posted,
    PostOutcome,
    PostRequest,
    Released,
    Taken,
)
from threadcast_protocol.framing.codec import decode_events
from threadcast_protocol.wire.ids import EntryId, Head

__all__ = ["RULES"]

# the owner


def _read_before_the_fence(put: Put) -> None:
    async def open_carelessly(self: Actor) -> Writer:
        context = self._context
        loaded = await self._retry_policy.until_answered(lambda: context.store.load(self.chat_id))
        taken = await self._retry_policy.until_answered(
            lambda: context.store.take(self.chat_id, context.worker, self._why)
        )
        state = fold_loaded(self.chat_id, loaded, with_facts=True) if loaded.head else empty_owner_state(self.chat_id)
        fenced = _with_fence(state, taken, context.worker, self._why)
        return self._new_writer(taken, Cached(fenced, CheckpointPolicy.of(extent_of(loaded)), KeptView()))

    put(Actor, "_open", open_carelessly)


def _with_fence(state: OwnerState, taken: Taken, worker: str, why: str) -> OwnerState:
    fence = RawEntry(
        entry_id=Head.parse(taken.head).entry_id,
        head=taken.head,
        before=state.head,
        position=state.position,
        time_ms=taken.time_ms,
        version=0,
        fence=Fence(worker, why),
    )
    return fold_checked(state, fence, with_facts=True)[0]


def _cache_uncompared(put: Put) -> None:
    def pop(self: StateCache, chat_id: str, head: str) -> Cached | None:
        for key in reversed(list(self._states)):
            if key[0] == chat_id:
                cached, _ = self._states.pop(key)
                return cached._replace(state=replace(cached.state, head=head))
        return None

    put(StateCache, "pop", pop)


def _timers_forgotten(put: Put) -> None:
    real = Actor._release

    async def release(self: Actor, writer: Writer, when_ms: int | None) -> bool:
        return await real(self, writer, None)

    put(Actor, "_release", release)


def _trim_everything(put: Put) -> None:
    real_request, real_append = Writer._request, SimStore.append

    def request(self: Writer, *arguments: Any) -> tuple[AppendRequest, EntryId, OwnerState]:  # Any: the writer's own
        asked, entry_id, after = real_request(self, *arguments)
        return replace(asked, trim=entry_id), entry_id, after

    async def append(self: SimStore, asked: AppendRequest) -> Appended:
        answer = await real_append(self, replace(asked, trim=None))
        if answer is Appended.OK and asked.trim is not None:
            chat = self.chat(asked.chat_id)
            chat.log = [entry for entry in chat.log if entry.entry_id >= asked.trim]
        return answer

    put(Writer, "_request", request)
    put(SimStore, "append", append)


# the store


def _append_to_anything(put: Put) -> None:
    async def append(self: SimStore, asked: AppendRequest) -> Appended:
        chat = self.chat(asked.chat_id)
        if chat.head and chat.head not in (asked.expected, asked.head):
            last, mine = Head.parse(chat.head), Head.parse(asked.head)
            there = EntryId(last.entry_id.epoch, last.entry_id.n + 1)
            events = len(decode_events(asked.events))
            head = str(Head(there, mine.digest, last.position + events))
            asked = replace(asked, expected=chat.head, head=head)
        return await MemoryStore.append(self, asked)

    put(SimStore, "append", append)


def _consume_what_is_not_there(put: Put) -> None:
    async def append(self: SimStore, asked: AppendRequest) -> Appended:
        inbox = self.chat(asked.chat_id).inbox
        return await MemoryStore.append(
            self, replace(asked, consumed=tuple(c for c in asked.consumed if c[0] in inbox))
        )

    put(SimStore, "append", append)


def _consume_afterwards(put: Put) -> None:
    real = Way.append

    async def append(self: Way, asked: AppendRequest) -> Appended:
        answer = await real(self, replace(asked, consumed=()))

        async def consume() -> None:
            for inbox_id, _ in asked.consumed:
                self._harness.chat(asked.chat_id).inbox.pop(inbox_id, None)

        if asked.consumed:
            await self._call("consume", "", consume)
        return answer

    put(Way, "append", append)


def _remember_afterwards(put: Put) -> None:
    async def post(self: SimStore, request: PostRequest) -> Posted:
        posted = await MemoryStore.post(self, request)
        seen = self.chat(request.chat_id).seen
        if posted.outcome is PostOutcome.ACCEPTED and request.request_id in seen:
            value = seen.pop(request.request_id)
            self._world.later(0.05, seen.update, {request.request_id: value})
        return posted

    put(SimStore, "post", post)


def _no_nonce(put: Put) -> None:
    calls = iter(range(1_000_000))

    async def post(self: SimStore, request: PostRequest) -> Posted:
        return await MemoryStore.post(self, replace(request, nonce=f"{request.nonce}x{next(calls)}"))

    put(SimStore, "post", post)


def _leave_with_commands(put: Put) -> None:
    async def release(
        self: SimStore, chat_id: str, worker: str, head: str, when_ms: int | None, left_ms: int | None = None
    ) -> Released:
        chat = self.chat(chat_id)
        held, chat.inbox = chat.inbox, {}
        try:
            return await MemoryStore.release(self, chat_id, worker, head, when_ms, left_ms)
        finally:
            chat.inbox = held

    put(SimStore, "release", release)


def _release_any_head(put: Put) -> None:
    async def release(
        self: SimStore, chat_id: str, worker: str, head: str, when_ms: int | None, left_ms: int | None = None
    ) -> Released:
        return await MemoryStore.release(self, chat_id, worker, self.chat(chat_id).head, when_ms, left_ms)

    put(SimStore, "release", release)


def _anybody_releases(put: Put) -> None:
    async def release(
        self: SimStore, chat_id: str, worker: str, head: str, when_ms: int | None, left_ms: int | None = None
    ) -> Released:
        owner = self.bucket.own.get(chat_id)
        if owner is None:
            raise Lost(chat_id)
        return await MemoryStore.release(self, chat_id, owner, self.chat(chat_id).head, when_ms, left_ms)

    put(SimStore, "release", release)


def _silent_beat(put: Put) -> None:
    async def beat(self: SimStore, worker: str, lease_ms: int, chats: list[str]) -> dict[str, Beat]:
        answers = await MemoryStore.beat(self, worker, lease_ms, chats)
        return {chat_id: Beat.MINE if each is Beat.INBOX else each for chat_id, each in answers.items()}

    put(SimStore, "beat", beat)


def _anybody_takes(put: Put) -> None:
    async def take(self: SimStore, chat_id: str, worker: str, why: str) -> Taken:
        self.bucket.own[chat_id] = worker
        return await MemoryStore.take(self, chat_id, worker, why)

    put(SimStore, "take", take)


def _delete_forgets_commands(put: Put) -> None:
    real = SimStore.delete

    async def delete(self: SimStore, chat_id: str, owner: str, nonce: str) -> bool:
        lives = self._world.deletes
        gone = await real(self, chat_id, owner, nonce)
        if self._world.deletes > lives:
            chat = self.chat(chat_id)
            chat.seen = {name: value for name, value in chat.seen.items() if name.startswith("!")}
        return gone

    put(SimStore, "delete", delete)


def _after_a_delete(forget: Callable[[SimStore, str, str], object]) -> Callable[[Put], None]:
    """`forget` gets the store, the chat's id and the nonce of the delete."""

    def switch_off(put: Put) -> None:
        real = SimStore.delete

        async def delete(self: SimStore, chat_id: str, owner: str, nonce: str) -> bool:
            gone = await real(self, chat_id, owner, nonce)
            forget(self, chat_id, nonce)
            return gone

        put(SimStore, "delete", delete)

    return switch_off


_delete_forgets_itself = _after_a_delete(lambda store, chat_id, nonce: store.chat(chat_id).seen.pop(f"!{nonce}", None))
_delete_forgets_the_floor = _after_a_delete(lambda store, chat_id, _: store.chat(chat_id).meta.pop("floor", None))


def _delete_leaves_the_owner(put: Put) -> None:
    real = SimStore.delete

    async def delete(self: SimStore, chat_id: str, owner: str, nonce: str) -> bool:
        bucket = self.bucket
        own, due = dict(bucket.own), dict(bucket.due)
        gone = await real(self, chat_id, owner, nonce)
        bucket.own.update(own)
        bucket.due.update(due)
        return gone

    put(SimStore, "delete", delete)


def _newest_first(put: Put) -> None:
    async def read_inbox(self: SimStore, chat_id: str, limit: int) -> list[InboxEntry]:
        return list(reversed(self.chat(chat_id).inbox.values()))[:limit]

    put(SimStore, "read_inbox", read_inbox)


# owners that no longer listen


def _judged_at_first_sight(put: Put) -> None:
    async def end_leases(self: SimStore, bucket: int, worker: str, owner: str, cursor: str) -> EndedLeases:
        heard, self._switchboard._listeners = self._switchboard._listeners, {f"mail:{worker}": []}
        try:
            ended = await MemoryStore.end_leases(self, bucket, worker, owner, cursor)
        finally:
            self._switchboard._listeners = heard
        if ended.count:
            self._world.silence.judged(worker, owner)
        return ended

    put(SimStore, "end_leases", end_leases)


SILENCE_RULES = (
    Rule(
        "two looks with a pause between them",
        "silence",
        lambda put: put(silent_owners, "LOOK_GAP_SECONDS", 0.0),
        1_000,
    ),
    Rule("the second look looks again", "silence", _judged_at_first_sight, 1_000),
    Rule(
        "no look within a lease after connections were lost",
        "promoted",
        lambda put: put(SilentOwners, "_may_look", lambda *_: True),
        1_000,
    ),
    Rule(
        "what may not run twice is settled after the former lease",
        "silence",
        lambda put: put(FormerOwner, "wait_seconds", lambda *_: 0.0),
        1_000,
    ),
    Rule(
        "a takeover counts if work had begun",
        "silence",
        lambda put: put(FormerOwner, "is_taken_over_by", lambda self, worker: self.worker not in ("", worker)),
        1_000,
    ),
)


# the way back


def _fold_by_id(put: Put) -> None:
    async def take(self: Relay, log_message: LogMessage) -> None:
        mine = Head.parse(self._state.head).entry_id if self._state.head else EntryId(0, 0)
        entry = log_message.entry
        if entry is None:
            await self._load(log_message.kind)
        elif entry.entry_id > mine:
            end = self._state.position + len(decode_events(entry.events))
            self._show(replace(entry, before=self._state.head, position=end))

    put(Relay, "_take", take)


def _no_position_check(put: Put) -> None:
    def check(self: Hub, tasks: TaskGroup, now: float) -> None:
        """Trusts pub/sub."""

    put(Hub, "_check_positions", check)


def _half_a_reload(put: Put) -> None:
    async def load(self: Relay, reason: str) -> None:
        loaded = await self._store.load(self.chat_id)
        if loaded.head == self._state.head:
            return
        befores = [entry.before for entry in loaded.entries]
        if self._state.head and self._state.head in befores:
            await self._know_owner()
            for entry in loaded.entries[befores.index(self._state.head) :]:
                self._show(entry)
            return
        self._state = fold_loaded(self.chat_id, loaded, with_facts=False)
        self._owner = None
        await self._know_owner()
        self._begin_history("lost_position")

    put(Relay, "_load", load)


RULES = (
    Rule("fence before reading", "pause", _read_before_the_fence, 2_000),
    Rule("compare-and-append", "net", _append_to_anything),
    Rule("effect and consumption in one step", "crash", _consume_afterwards),
    Rule("append must find what it consumes", "failover", _consume_what_is_not_there, 3_000, near=280),
    Rule("seen in the same step as the inbox", "net", _remember_afterwards),
    Rule("nonce", "net", _no_nonce),
    Rule("beat's 'M'", "busy", _silent_beat),
    Rule("release looks into the inbox", "net", _leave_with_commands, 1_000),
    Rule("release compares the head", "net", _release_any_head, 12_000, near=7_800),
    Rule("release compares owner and head", "net", _anybody_releases, 3_000, near=570),
    Rule("take compares the owner", "delete", _anybody_takes, 1_000),
    Rule("seen survives a delete", "delete", _delete_forgets_commands, 1_000),
    Rule("a delete remembers its nonce", "delete", _delete_forgets_itself, 1_000),
    Rule("a delete takes the chat from its owner", "delete", _delete_leaves_the_owner),
    Rule("ids go on from where a deleted life ended", "delete", _delete_forgets_the_floor, 1_000),
    Rule("commands are taken up in the order of their acceptance", "net", _newest_first),
    Rule("timers in the state", "timers", _timers_forgotten),
    Rule(
        "a log of a newer version is refused", "upgrade", lambda put: put(load, "_refuse_newer", lambda _version: None)
    ),
    Rule("poison counter", "poison", lambda put: put(actor_module, "POISON_ATTEMPTS", 1_000_000)),
    Rule("cached state compared with the head", "crash", _cache_uncompared, 1_000, near=290),
    Rule("trim not beyond the checkpoint", "crash", _trim_everything),
    Rule("once means once", "crash", lambda put: put(recovery, "_settle_started", lambda *_: None)),
    Rule("an interrupt is one step", "urgent", lambda put: put(decider, "interrupts", lambda *_: False)),
    Rule("relay: contiguity by the entry before", "slow", _fold_by_id),
    Rule("relay: position check", "slow", _no_position_check),
    Rule("relay: a reload changes all or nothing", "net", _half_a_reload, 2_000),
    *REST_RULES,
    *SILENCE_RULES,
    *AGENT_RULES,
)
