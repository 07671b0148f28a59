"""The compacted log of a chat at rest: exactly the positions that its history holds can be shown, each unchanged."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pure_chat import PureChat
from tests.unit.test_store_history import conversation, folded
from threadcast.actor import compaction
from threadcast.actor.checkpoint_policy import CHECKPOINT_MAX_BYTES, CheckpointPolicy
from threadcast.chat.entry_codec import encode_state
from threadcast.chat.owner_state import OwnerState
from threadcast.store import history_parts
from threadcast.store.history import NoLongerHeld, state_at
from threadcast.store.history_parts import decode_part
from threadcast.store.load import NewerVersion, load_folded
from threadcast.store.memory.records import Chat
from threadcast.store.memory.store import MemoryStore
from threadcast_protocol.fold.reducer import Gap
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.ids import EntryId, Head

pytestmark = pytest.mark.anyio

CHAT = "c1"


class Played(MemoryStore):
    """A store to which the entries of one chat are written, with rests in between. `policy` is the owner's."""

    def __init__(self, chat: PureChat) -> None:
        super().__init__()
        self.source = chat
        self.kept = self._chats[CHAT] = Chat()
        self.policy = CheckpointPolicy()
        self.written = 0

    @property
    def state(self) -> OwnerState:
        return self.source.states[self.written]

    def write(self, until: int) -> None:
        for entry in self.source.entries[self.written : until]:
            before = Head.parse(entry.before).position if entry.before else 0
            self.policy.add(entry.entry_id, entry.position - before, len(entry.events))
            self.kept.log.append(entry)
            self.kept.head = entry.head
        self.written = max(self.written, until)

    async def rest(self, *, is_long: bool = False) -> None:
        """Release the chat; after a long rest the log is gone."""
        short = await compaction.compacted(self, self.state, self.policy)
        assert short is not None
        self.kept.compact(short, 0)
        self.kept.log_expires_at_ms = None
        self.policy.move_checkpoint(Head.parse(self.kept.head).entry_id, len(short.checkpoint), short.trim)
        if is_long:
            self.kept.log = []

    def checkpoint_and_trim(self) -> None:
        """Compact the history as an append does after many entries without a rest."""
        self.kept.snap = (self.state.head, 1, encode_state(self.state))
        self.kept.log = self.kept.log[-1:]
        self.policy.move_checkpoint(Head.parse(self.kept.head).entry_id, 1, None)

    async def shown(self, position: int) -> bytes:
        return encode(snapshot_of(await state_at(self, CHAT, position)))

    async def held(self) -> list[int]:
        """Return the positions that can be shown. Each must be shown unchanged, and an error must name the next
        available position."""
        found: list[int] = []
        missing: list[tuple[int, int]] = []
        for position in range(self.state.position + 1):
            try:
                assert await self.shown(position) == encode(snapshot_of(folded(self.source, position)))
                found.append(position)
            except NoLongerHeld as gone:
                missing.append((position, gone.first))
        assert missing == [(each, min(other for other in found if other > each)) for each, _ in missing]
        return found


@given(st.data())
async def test_every_position_can_be_shown_however_often_the_chat_has_rested_and_for_how_long(
    data: st.DataObject,
) -> None:
    chat = conversation(4)
    sizes = st.sampled_from([1, 600, 3_000, 1_000_000])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "PART_BYTES", data.draw(sizes))
        patch.setattr(compaction, "SEGMENT_BYTES", data.draw(sizes))
        store = Played(chat)
        for until in sorted(data.draw(st.sets(st.integers(1, len(chat.entries)), max_size=6))):
            store.write(until)
            if data.draw(st.booleans()):
                await store.rest(is_long=data.draw(st.booleans()))
        store.write(len(chat.entries))
        assert await store.held() == [*range(chat.state.position + 1)]
        assert (await load_folded(store, CHAT, with_facts=True)).state == chat.state


async def test_a_history_keeps_its_newest_segments_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "PART_BYTES", 1)
    monkeypatch.setattr(compaction, "SEGMENT_BYTES", 5_000)
    monkeypatch.setattr(compaction, "HISTORY_MAX_BYTES", 8_000)
    store = Played(conversation(16))
    for until in range(4, len(store.source.entries) + 1, 4):
        store.write(until)
        await store.rest(is_long=True)
        assert decode_part(store.kept.history[0]).number == 0
        assert sum(map(len, store.kept.history)) < 2 * 8_000
    held = await store.held()
    assert held == [*range(held[0], store.state.position + 1)]
    assert 0 < held[0] < store.state.position


async def test_a_segment_goes_on_until_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "PART_BYTES", 1)
    store = Played(conversation(4))
    for until in range(4, len(store.source.entries) + 1, 4):
        store.write(until)
        await store.rest()
    parts = [decode_part(part) for part in store.kept.history]
    assert [part.number for part in parts] == [*range(len(parts))] and len(parts) > 2


async def test_what_was_trimmed_before_it_came_to_a_rest_is_not_held_and_a_new_segment_begins_after_it() -> None:
    store = Played(conversation(4))
    third = len(store.source.entries) // 3
    store.write(third)
    await store.rest()
    until = store.state.position
    store.write(2 * third)
    store.checkpoint_and_trim()
    again = store.state.position
    store.write(len(store.source.entries))
    await store.rest(is_long=True)
    assert [decode_part(part).number for part in store.kept.history] == [0, 0]
    assert await store.held() == [*range(until + 1), *range(again, store.state.position + 1)]


@pytest.mark.parametrize(
    "damaged", [b"", b"x", b"0 0 1 1 1-1 d 5", b"0 0 1 1 1-1 d 5\n", b"0 0 1 1 1-1 d 5\nnot compressed"]
)
async def test_a_damaged_history_is_never_shown_and_keeps_nobody_from_resting(damaged: bytes) -> None:
    store = Played(conversation(2))
    store.write(len(store.source.entries) // 2)
    await store.rest(is_long=True)
    store.kept.history = [damaged]
    with pytest.raises((Gap, NoLongerHeld)):
        await state_at(store, CHAT, 1)
    store.write(len(store.source.entries))
    await store.rest()
    assert (await load_folded(store, CHAT, with_facts=True)).state == store.source.state


async def test_a_part_of_a_newer_version_is_neither_folded_nor_continued() -> None:
    store = Played(conversation(2))
    store.write(len(store.source.entries) // 2)
    await store.rest(is_long=True)
    (part,) = store.kept.history
    number, first, _, rest = part.split(b" ", 3)
    store.kept.history = [b" ".join((number, first, b"99", rest))]
    with pytest.raises(NewerVersion):
        await state_at(store, CHAT, 1)
    store.write(len(store.source.entries))
    await store.rest()
    assert store.kept.history == [b" ".join((number, first, b"99", rest))]


async def test_a_segment_does_not_begin_with_a_large_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_parts, "STATE_MAX_BYTES", 10)
    store = Played(conversation(2))
    store.write(len(store.source.entries) // 2)
    store.checkpoint_and_trim()
    store.write(len(store.source.entries))
    await store.rest()
    assert store.kept.history == []


def test_a_long_chat_is_compacted_when_an_eighth_was_added() -> None:
    policy = CheckpointPolicy(checkpoint_id=EntryId(1, 1), checkpoint_bytes=800_000)
    policy.add(EntryId(1, 2), 5, 100_000)
    assert not policy.compacts_at_rest()
    policy.add(EntryId(1, 3), 5, 1)
    assert policy.compacts_at_rest()
    policy.checkpoint_bytes = CHECKPOINT_MAX_BYTES
    policy.pending_bytes = CHECKPOINT_MAX_BYTES
    assert not policy.compacts_at_rest(), "its checkpoint would stop the other chats of the worker"
    assert CheckpointPolicy(pending_bytes=64_000).compacts_at_rest()


def test_history_is_small_beside_its_log() -> None:
    chat = conversation(50)
    part = history_parts.first_part(None, chat.entries)
    assert part is not None
    assert len(history_parts.encode_part(part)) < 0.15 * _size(chat.entries)


def _size(entries: Sequence[object]) -> int:
    return sum(len(encode(entry)) for entry in entries)
