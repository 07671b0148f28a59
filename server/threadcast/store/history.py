"""Returns an earlier state of a chat, by folding its log up to a position, as far back as the store still has the log.

`api/chats.py` calls it. A state is always folded from a complete start, which is the first entry or the checkpoint;
otherwise the call fails.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from threadcast.chat.entries import RawEntry
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast.store.load import READS_MAX, fold_checked, fold_loaded, in_thread_if
from threadcast.store.ports import Loaded, Log
from threadcast_protocol.fold.reducer import Gap, reduce_event
from threadcast_protocol.framing.codec import decode_events
from threadcast_protocol.wire.errors import Unavailable

__all__ = ["NoLongerHeld", "fold_until", "state_at"]


class NoLongerHeld(Exception):
    """The log was trimmed after the requested position. `first` is the earliest position that can still be returned."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.first = first


async def state_at(store: Log, chat_id: str, position: int) -> OwnerState:
    """Return the chat's state after its event at `position` (0: before the first event), at most the present state.

    Raises:
        NoLongerHeld: the log was trimmed after `position`.
        Gap, NewerVersion: as `fold_loaded`.
        Unavailable: the store does not answer.
    """
    for _ in range(READS_MAX):
        loaded = await store.load(chat_id)
        state, page, is_last = empty_owner_state(chat_id), loaded.entries, loaded.is_whole
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


async def _fold_page(state: OwnerState, page: Sequence[RawEntry]) -> OwnerState:
    """Fold all entries of the page. Raises Gap, NewerVersion."""
    size = sum(len(entry.events) for entry in page)
    return await in_thread_if(size, fold_until, state, page, page[-1].position)


def fold_until(state: OwnerState, entries: Sequence[RawEntry], position: int) -> OwnerState:
    """Fold the entries into `state` up to `position`, which may lie inside an entry. Raises Gap, NewerVersion."""
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
