"""Each safety rule, switched off in the real code: the search must notice, or it proves nothing.

A mutation replaces one function of the product, or one step of the in-memory store, by what a careless author might
have written. It holds inside `switched_off` only. It knows no seed; `search.py` counts how many it takes until one
fails. The rule: a mutation takes away one thing, and leaves every other protection in place.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from protocol import decider
from protocol.codec import decode_events
from protocol.entries import Fence, RawEntry
from protocol.ids import EntryId, Head
from protocol.state import ChatState, empty_state
from server.actor import actor as actor_module
from server.actor.actor import Actor
from server.actor.upkeep import Upkeep
from server.actor.workplace import StateCache
from server.actor.writer import Writer
from server.agent import recovery
from server.relay.hub import Hub
from server.relay.relay import Relay
from server.store import load
from server.store.load import extent_of, fold_checked, fold_loaded
from server.store.memory import MemoryStore
from server.store.port import (
    Appended,
    AppendRequest,
    Beat,
    InboxEntry,
    Lost,
    Notice,
    Posted,
    PostOutcome,
    PostRequest,
    Released,
    Taken,
)
from tests.sim.store import SimStore, Way

__all__ = ["RULES", "Rule", "switched_off"]

Put = Callable[[Any, str, object], None]  # Any: a class or a module


@dataclass(frozen=True)
class Rule:
    """`mix` is the weather in which it matters; `within` how many seeds the search may need, from 0 on. `near`: where
    the tests begin to look, since they have less time. That a cached state is known by its whole head string is held
    by `tests/unit/test_state_cache.py`: two histories with one id are too rare here."""

    name: str
    mix: str
    switch_off: Callable[[Put], None]
    within: int = 300
    near: int = 0


# the owner


def _read_before_the_fence(put: Put) -> None:
    async def open_carelessly(self: Actor) -> Writer:
        place = self._place
        loaded = await self._patience.until_answered(lambda: place.store.load(self.chat_id))
        taken = await self._patience.until_answered(lambda: place.store.take(self.chat_id, place.worker, self._why))
        state = fold_loaded(self.chat_id, loaded, with_facts=True) if loaded.head else empty_state(self.chat_id)
        return self._new_writer(taken, _with_fence(state, taken, place.worker, self._why), Upkeep.of(extent_of(loaded)))

    put(Actor, "_open", open_carelessly)


def _with_fence(state: ChatState, taken: Taken, worker: str, why: str) -> ChatState:
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
    def pop(self: StateCache, chat_id: str, head: str) -> tuple[ChatState, Upkeep] | None:
        for key in reversed(list(self._states)):
            if key[0] == chat_id:
                state, upkeep = self._states.pop(key)
                return replace(state, head=head), upkeep
        return None

    put(StateCache, "pop", pop)


def _timers_forgotten(put: Put) -> None:
    real = Actor._release

    async def release(self: Actor, writer: Writer, when_ms: int | None) -> bool:
        return await real(self, writer, None)

    put(Actor, "_release", release)


def _newer_is_folded(put: Put) -> None:
    put(load, "_refuse_newer", lambda _version: None)


def _nobody_is_blamed(put: Put) -> None:
    put(actor_module, "POISON_ATTEMPTS", 1_000_000)


def _once_runs_again(put: Put) -> None:
    put(recovery, "_settle_started", lambda *_: None)


def _trim_everything(put: Put) -> None:
    real_request, real_append = Writer._request, SimStore.append

    def request(self: Writer, *arguments: Any) -> tuple[AppendRequest, EntryId, ChatState]:  # Any: the writer's own
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
                self._house.chat(asked.chat_id).inbox.pop(inbox_id, None)

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


def _leave_with_mail(put: Put) -> None:
    async def release(self: SimStore, chat_id: str, worker: str, head: str, when_ms: int | None) -> Released:
        chat = self.chat(chat_id)
        held, chat.inbox = chat.inbox, {}
        try:
            return await MemoryStore.release(self, chat_id, worker, head, when_ms)
        finally:
            chat.inbox = held

    put(SimStore, "release", release)


def _release_any_head(put: Put) -> None:
    async def release(self: SimStore, chat_id: str, worker: str, head: str, when_ms: int | None) -> Released:
        return await MemoryStore.release(self, chat_id, worker, self.chat(chat_id).head, when_ms)

    put(SimStore, "release", release)


def _anybody_releases(put: Put) -> None:
    async def release(self: SimStore, chat_id: str, worker: str, head: str, when_ms: int | None) -> Released:
        owner = self.bucket.own.get(chat_id)
        if owner is None:
            raise Lost(chat_id)
        return await MemoryStore.release(self, chat_id, owner, self.chat(chat_id).head, when_ms)

    put(SimStore, "release", release)


def _silent_beat(put: Put) -> None:
    async def beat(self: SimStore, worker: str, lease_ms: int, chats: list[str]) -> dict[str, Beat]:
        answers = await MemoryStore.beat(self, worker, lease_ms, chats)
        return {chat_id: Beat.MINE if each is Beat.MAIL else each for chat_id, each in answers.items()}

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


def _delete_forgets_itself(put: Put) -> None:
    real = SimStore.delete

    async def delete(self: SimStore, chat_id: str, owner: str, nonce: str) -> bool:
        gone = await real(self, chat_id, owner, nonce)
        self.chat(chat_id).seen.pop(f"!{nonce}", None)
        return gone

    put(SimStore, "delete", delete)


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


def _delete_forgets_the_floor(put: Put) -> None:
    real = SimStore.delete

    async def delete(self: SimStore, chat_id: str, owner: str, nonce: str) -> bool:
        gone = await real(self, chat_id, owner, nonce)
        self.chat(chat_id).meta.pop("floor", None)
        return gone

    put(SimStore, "delete", delete)


def _newest_first(put: Put) -> None:
    async def read_inbox(self: SimStore, chat_id: str, limit: int) -> list[InboxEntry]:
        return list(reversed(self.chat(chat_id).inbox.values()))[:limit]

    put(SimStore, "read_inbox", read_inbox)


# the way back


def _fold_by_id(put: Put) -> None:
    async def take(self: Relay, notice: Notice) -> None:
        mine = Head.parse(self._state.head).entry_id if self._state.head else EntryId(0, 0)
        entry = notice.entry
        if entry is None:
            await self._load(notice.kind)
        elif entry.entry_id > mine:
            end = self._state.position + len(decode_events(entry.events))
            await self._fold(replace(entry, before=self._state.head, position=end))

    put(Relay, "_take", take)


def _no_position_check(put: Put) -> None:
    async def check(self: Hub, now: float) -> None:
        """Trusts pub/sub."""

    put(Hub, "_check_positions", check)


def _half_a_reload(put: Put) -> None:
    async def load(self: Relay, reason: str) -> None:
        loaded = await self._store.load(self.chat_id)
        if loaded.head == self._state.head:
            return
        befores = [entry.before for entry in loaded.entries]
        if self._state.head and self._state.head in befores:
            for entry in loaded.entries[befores.index(self._state.head) :]:
                await self._fold(entry)
            return
        self._state = fold_loaded(self.chat_id, loaded, with_facts=False)
        self._forget_frames()
        await self._know_owner()
        for subscriber in list(self.subscribers):
            subscriber.resync("lost_position")

    put(Relay, "_load", load)


RULES = (
    Rule("fence before reading", "pause", _read_before_the_fence, 2_000),
    Rule("compare-and-append", "net", _append_to_anything),
    Rule("effect and consumption in one step", "crash", _consume_afterwards),
    Rule("append must find what it consumes", "failover", _consume_what_is_not_there, 3_000, near=280),
    Rule("seen in the same step as the inbox", "net", _remember_afterwards),
    Rule("nonce", "net", _no_nonce),
    Rule("beat's 'M'", "busy", _silent_beat),
    Rule("release looks into the inbox", "net", _leave_with_mail, 1_000),
    Rule("release compares the head", "net", _release_any_head, 3_000, near=570),
    Rule("release compares owner and head", "net", _anybody_releases, 3_000, near=570),
    Rule("take compares the owner", "delete", _anybody_takes, 1_000),
    Rule("seen survives a delete", "delete", _delete_forgets_commands, 1_000),
    Rule("a delete remembers its nonce", "delete", _delete_forgets_itself, 1_000),
    Rule("a delete takes the chat from its owner", "delete", _delete_leaves_the_owner),
    Rule("ids go on from where a deleted life ended", "delete", _delete_forgets_the_floor, 1_000),
    Rule("commands are taken up in the order of their acceptance", "net", _newest_first),
    Rule("timers in the state", "timers", _timers_forgotten),
    Rule("a log of a newer version is refused", "upgrade", _newer_is_folded),
    Rule("poison counter", "poison", _nobody_is_blamed),
    Rule("cached state compared with the head", "crash", _cache_uncompared, 1_000, near=290),
    Rule("trim not beyond the checkpoint", "crash", _trim_everything),
    Rule("once means once", "crash", _once_runs_again),
    Rule("an interrupt is one step", "urgent", lambda put: put(decider, "interrupts", lambda *_: False)),
    Rule("relay: contiguity by the entry before", "slow", _fold_by_id),
    Rule("relay: position check", "slow", _no_position_check),
    Rule("relay: a reload changes all or nothing", "net", _half_a_reload, 2_000),
)


@contextmanager
def switched_off(rule: Rule | None) -> Iterator[None]:
    """The rule does not hold for as long as the block runs."""
    undo: list[tuple[Any, str, object, bool]] = []

    def put(target: Any, name: str, value: object) -> None:
        undo.append((target, name, getattr(target, name), name in vars(target)))
        setattr(target, name, value)

    if rule is not None:
        rule.switch_off(put)
    try:
        yield
    finally:
        for target, name, value, was_its_own in reversed(undo):
            if was_its_own:
                setattr(target, name, value)
            else:
                delattr(target, name)
