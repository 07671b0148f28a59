"""A chat as it was: its log folded up to a position, as far back as the store still holds it.

It reads what a log is made of (checkpoint, entries) and knows no HTTP. `server/api/chats.py` calls it. The rule: a
state is folded from a whole beginning, the first entry or the checkpoint, or it is not shown at all.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from protocol.codec import decode_events
from protocol.entries import RawEntry
from protocol.reducer import Gap, reduce_event
from protocol.state import ChatState, empty_state
from server.store.load import fold_checked, fold_loaded
from server.store.port import Loaded, Store

__all__ = ["NoLongerHeld", "fold_until", "state_at"]


class NoLongerHeld(Exception):
    """`first` is the earliest position that can still be shown."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.first = first


async def state_at(store: Store, chat_id: str, position: int) -> ChatState:
    """The chat after its event at `position`, 0 for before the first; at most where it stands now.

    Raises:
        NoLongerHeld: what lies there was trimmed.
        Gap, NewerVersion: as `fold_loaded`.
        Unavailable: the store does not answer.
    """
    loaded = await store.load(chat_id)
    entries = loaded.entries
    checkpoint = loaded.checkpoint
    if checkpoint is not None:
        base = fold_loaded(chat_id, Loaded(checkpoint, [], checkpoint[0]), with_facts=False)
        if base.position <= position:
            return fold_until(base, entries, position)
        entries = await store.read_log(chat_id)
        if not entries or entries[0].before:
            raise NoLongerHeld(base.position)
    return fold_until(empty_state(chat_id), entries, position)


def fold_until(state: ChatState, entries: Sequence[RawEntry], position: int) -> ChatState:
    """`state` and then the entries up to `position`, which may lie inside one. Raises Gap, NewerVersion."""
    for entry in entries:
        if entry.position > position:
            if state.position < position:
                for event in decode_events(entry.events)[: position - state.position]:
                    state = reduce_event(state, event)
                state = replace(state, epoch=entry.entry_id.epoch, position=position)
            break
        state, _ = fold_checked(state, entry, with_facts=False)
    if state.position != position:
        raise Gap(f"{state.chat_id} ends at {state.position}, before position {position}")
    return state
