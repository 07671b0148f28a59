"""A chat as it was: its log folded up to a position, as far back as the store still holds it.

It reads what a log is made of (checkpoint, entries) and knows no HTTP. `server/api/chats.py` calls it. The rule: a
state is folded from a whole beginning, the first entry or the checkpoint, or it is not shown at all.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from protocol.codec import decode_events
from protocol.entries import RawEntry
from protocol.errors import Unavailable
from protocol.reducer import Gap, reduce_event
from protocol.state import ChatState, empty_state
from server.store.load import READS_MAX, fold_checked, fold_loaded, in_thread_if
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
    for _ in range(READS_MAX):
        loaded = await store.load(chat_id)
        state, page, is_last = empty_state(chat_id), loaded.entries, loaded.is_whole
        if loaded.checkpoint is not None:
            only = Loaded(loaded.checkpoint, [], loaded.checkpoint[0])
            base = await in_thread_if(len(loaded.checkpoint[2]), fold_loaded, chat_id, only, False)
            if base.position <= position:
                state = base
            else:
                page, is_last = await store.read_log(chat_id), False
                if not page or page[0].before:
                    raise NoLongerHeld(base.position)
        while not is_last and page[-1].position <= position:
            state = await _fold_page(state, page)
            page = await store.read_log(chat_id, after=page[-1].entry_id)
            is_last = not page
            if (page and page[0].before != state.head) or (is_last and state.position < position):
                break  # trimmed in between
        else:
            return fold_until(state, page, position)
    raise Unavailable("the log of this chat is trimmed faster than it can be read; try again")


async def _fold_page(state: ChatState, page: Sequence[RawEntry]) -> ChatState:
    """Fold all entries of the page. Raises Gap, NewerVersion."""
    size = sum(len(entry.events) for entry in page)
    return await in_thread_if(size, fold_until, state, page, page[-1].position)


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
