"""Returns an earlier state of a chat, by folding its history or its log up to a position.

`api/chats.py` calls `state_at`. The fold always begins with a complete state: the empty state at the beginning of the
log, the checkpoint, or the state at the beginning of a segment of the history. The call fails if none of these states
is available.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from threadcast.chat.entries import RawEntry
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast.store.history_parts import Part, decode_part, fold_part
from threadcast.store.load import READS_MAX, fold_checked, fold_loaded, in_thread_if
from threadcast.store.ports import Loaded, Log
from threadcast_protocol.fold.reducer import Gap, reduce_event
from threadcast_protocol.framing.codec import decode_events
from threadcast_protocol.wire.errors import Unavailable
from threadcast_protocol.wire.ids import Head

__all__ = ["NoLongerHeld", "fold_until", "state_at"]


class NoLongerHeld(Exception):
    """The store no longer has the state at the requested position. `first` is the next position whose state is
    available."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.first = first


async def state_at(store: Log, chat_id: str, position: int) -> OwnerState:
    """Return the chat's state after its event at `position` (0: before the first event). `position` must not be later
    than the present state.

    Raises:
        NoLongerHeld: the log was trimmed after `position`, and the history does not contain it.
        Gap, NewerVersion: the errors of `fold_loaded`.
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
                known, first = await _from_history(store, chat_id, position, base.position)
                if known is not None and known.position == position:
                    return known
                state, is_last = known or state, False
                after = Head.parse(state.head).entry_id if state.head else None
                page = await store.read_log(chat_id, after=after)
                if not page or page[0].before != state.head:
                    raise NoLongerHeld(first)
        while not is_last and page[-1].position <= position:
            state = await _fold_page(state, page)
            page = await store.read_log(chat_id, after=page[-1].entry_id)
            is_last = not page
            if (page and page[0].before != state.head) or (is_last and state.position < position):
                break  # the log was trimmed between two reads
        else:
            return fold_until(state, page, position)
    raise Unavailable("the log of this chat is trimmed faster than it can be read; try again")


async def _from_history(store: Log, chat_id: str, position: int, checkpoint_at: int) -> tuple[OwnerState | None, int]:
    """Return a state from the history, and a position. The state is that at `position`, or at the end of a segment that
    ends before `position`; None if no segment begins at or before `position`. The returned position is the beginning of
    the next segment, or the position of the checkpoint if no segment follows."""
    segments: list[list[Part]] = []
    for stored in await store.read_history(chat_id):
        part = decode_part(stored)
        if part.number == 0 or not segments:
            segments.append([])
        segments[-1].append(part)
    next_first = checkpoint_at
    for segment in reversed(segments):
        if segment[0].first > position:
            next_first = segment[0].first
            continue
        state: OwnerState | None = None
        for part in segment:
            state = await in_thread_if(part.size_bytes, fold_part, chat_id, state, part, position)
            if state.position == position:
                break
        return state, next_first
    return None, next_first


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
