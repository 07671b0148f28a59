"""Earlier states of a chat: every stored position can be shown; other positions are refused, and no state is
guessed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pure_chat import PureChat, say
from threadcast.chat.entries import RawEntry
from threadcast.chat.entry_codec import encode_state
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast.store.history import NoLongerHeld, state_at
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import Loaded
from threadcast_protocol.fold.reducer import Gap, reduce
from threadcast_protocol.fold.snapshot import snapshot_of
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.ids import EntryId

pytestmark = pytest.mark.anyio


class OneChatStore(MemoryStore):
    """A store with one chat, which may have a checkpoint, and has entries from some position on."""

    def __init__(self, chat: PureChat, checkpoint_at: int | None = None, first: int = 0) -> None:
        super().__init__()
        self.chat = chat
        self.held = chat.entries[first:]
        self.checkpoint: tuple[str, int, bytes] | None = None
        self.after = 0
        if checkpoint_at is not None:
            state = chat.states[checkpoint_at + 1]
            self.checkpoint = (state.head, 1, encode_state(state))
            self.after = checkpoint_at + 1

    async def load(self, chat_id: str) -> Loaded:
        return Loaded(self.checkpoint, self.chat.entries[self.after :], self.chat.state.head)

    async def read_log(
        self,
        chat_id: str,
        through: EntryId | None = None,
        *,
        after: EntryId | None = None,
        newest: bool = False,
    ) -> list[RawEntry]:
        return [entry for entry in self.held if after is None or entry.entry_id > after]


def conversation(turns: int = 3) -> PureChat:
    chat = PureChat()
    for turn in range(turns):
        chat.command(say(f"r{turn}", f"question {turn}"))
        for piece in ("an", " ans", "wer"):
            chat.stream(AppendContent(piece))
        if turn == 1:
            chat.crash()
            chat.stream(AppendContent("again"))
        chat.finish()
    return chat


def folded(chat: PureChat, position: int) -> OwnerState:
    state = empty_owner_state("c1")
    for number, event in enumerate(chat.events[:position], start=1):
        state = reduce(state, number, event)
    return state


@given(st.data())
async def test_every_position_of_a_whole_log_can_be_shown_with_or_without_a_checkpoint(data: st.DataObject) -> None:
    chat = conversation()
    checkpoint = data.draw(st.none() | st.integers(0, len(chat.entries) - 1))
    position = data.draw(st.integers(0, chat.state.position))
    state = await state_at(OneChatStore(chat, checkpoint), "c1", position)
    assert encode(snapshot_of(state)) == encode(snapshot_of(folded(chat, position)))
    assert state.position == position


@given(st.data())
async def test_of_a_trimmed_log_what_lies_after_its_checkpoint_can_be_shown_and_else_the_earliest_is_named(
    data: st.DataObject,
) -> None:
    chat = conversation()
    checkpoint = data.draw(st.integers(1, len(chat.entries) - 1))
    first = data.draw(st.integers(1, checkpoint))
    earliest = chat.states[checkpoint + 1].position
    position = data.draw(st.integers(0, chat.state.position))
    store = OneChatStore(chat, checkpoint, first)
    if position >= earliest:
        state = await state_at(store, "c1", position)
        assert encode(snapshot_of(state)) == encode(snapshot_of(folded(chat, position)))
    else:
        with pytest.raises(NoLongerHeld) as gone:
            await state_at(store, "c1", position)
        assert gone.value.first == earliest
        assert (await state_at(store, "c1", earliest)).position == earliest


async def test_the_epoch_of_a_past_state_is_that_of_its_event() -> None:
    chat = conversation()
    for position in range(1, chat.state.position + 1):
        entry = next(each for each in chat.entries if each.position >= position)
        state = await state_at(OneChatStore(chat), "c1", position)
        assert state.epoch >= entry.entry_id.epoch
        assert any(life == state.epoch for life, _ in chat.state.lives)


async def test_a_log_with_a_hole_shows_nothing() -> None:
    chat = conversation()
    del chat.entries[2]
    with pytest.raises(Gap):
        await state_at(OneChatStore(chat), "c1", chat.state.position)
    short = conversation(1)
    with pytest.raises(Gap):
        await state_at(OneChatStore(short), "c1", short.state.position + 1)
