"""Compacts the log of a chat at rest: a checkpoint for the next owner, and a history for earlier states.

`rests.py` calls `compacted` for each chat that has been at rest for a while, and the store puts the result in the place
of the log in one step (DESIGN §2).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import anyio.to_thread

from threadcast.actor.checkpoint_policy import CheckpointPolicy
from threadcast.chat.entries import RawEntry
from threadcast.chat.entry_codec import encode_state
from threadcast.chat.owner_state import OwnerState
from threadcast.store.history_parts import (
    PART_BYTES,
    Part,
    continued,
    decode_part,
    encode_part,
    first_part,
    next_part,
)
from threadcast.store.load import NewerVersion, fold_loaded
from threadcast.store.ports import Compacted, Loaded, Log
from threadcast_protocol.fold.reducer import Gap
from threadcast_protocol.wire.ids import Head

__all__ = ["compacted", "is_compacted"]

_T = TypeVar("_T")

SEGMENT_BYTES = 1_000_000
"""A segment of the history is complete at this number of bytes, or at the size of the state if the state is larger,
since the next segment begins with a copy of the state."""

HISTORY_MAX_BYTES = 1_000_000
"""The maximum compressed bytes of a chat's history. If a history is larger, its oldest segments are deleted. One such
history covers some 20 MB of log (`history_parts.PART_BYTES`)."""

THREAD_ABOVE_BYTES = 256 * 1_024
"""The bytes of new events above which the events are compressed in a thread, like a large checkpoint."""


def is_compacted(state: OwnerState, policy: CheckpointPolicy) -> bool:
    """Return whether the log of a chat that rests in this state is compacted."""
    return state.private.importing is None and policy.compacts_at_rest()


async def compacted(store: Log, state: OwnerState, policy: CheckpointPolicy) -> Compacted | None:
    """Return the compacted form of the chat's log up to `state`; None if the log is not compacted. Raises
    Unavailable."""
    if not is_compacted(state, policy):
        return None
    trim = policy.trim_before()
    try:
        part, replaces_last = await _last_part(store, state, policy)
    except (Gap, NewerVersion):  # the history cannot be read; a new segment begins after the next trim of the log
        part, replaces_last = None, False
    checkpoint = encode_state(state)
    if part is None:
        return Compacted(checkpoint, state.version, trim)
    begins_again = part.number == 0 and not replaces_last and part.first > 0
    drop_first = _beyond_bound(await store.read_history(state.chat_id)) if begins_again else 0
    return Compacted(checkpoint, state.version, trim, encode_part(part), replaces_last, drop_first)


async def _last_part(store: Log, state: OwnerState, policy: CheckpointPolicy) -> tuple[Part | None, bool]:
    """Return the part of the history that ends at `state`, and whether it replaces the stored last part; None if
    nothing can be added. Raises Gap, NewerVersion, Unavailable."""
    stored = await store.read_history(state.chat_id, last_only=True)
    if stored:
        last = decode_part(stored[0])
        if last.head == state.head:
            return None, False
        entries = await _entries_after(store, state, last.head)
        if entries:
            if last.size_bytes < PART_BYTES:
                return await _in_thread_if(entries, lambda: continued(last, entries)), True
            is_full = last.segment_bytes >= max(SEGMENT_BYTES, policy.state_bytes)
            if not is_full or policy.checkpoint_id != Head.parse(last.head).entry_id:
                return await _in_thread_if(entries, lambda: next_part(last, entries)), False
    elif entries := await _entries_after(store, state, ""):
        return await _in_thread_if(entries, lambda: first_part(None, entries)), False
    loaded = await store.load(state.chat_id)
    if loaded.checkpoint is None or not loaded.entries or loaded.entries[-1].head != state.head:
        return None, False
    before = fold_loaded(state.chat_id, Loaded(loaded.checkpoint, [], loaded.checkpoint[0]), False)
    return await _in_thread_if(loaded.entries, lambda: first_part(before, loaded.entries)), False


async def _entries_after(store: Log, state: OwnerState, head: str) -> list[RawEntry]:
    """Return the entries from `head` to `state`; [] if an entry is missing, or if the entries have more bytes than a
    page."""
    page = await store.read_log(state.chat_id, after=Head.parse(head).entry_id if head else None)
    return page if page and page[0].before == head and page[-1].head == state.head else []


async def _in_thread_if(entries: Sequence[RawEntry], make: Callable[[], _T]) -> _T:
    """Call `make`, in a thread if there are many events to compress."""
    is_large = sum(len(entry.events) for entry in entries) > THREAD_ABOVE_BYTES
    return await anyio.to_thread.run_sync(make) if is_large else make()


def _beyond_bound(parts: Sequence[bytes]) -> int:
    """Return how many of the oldest parts to delete, so that whole segments of at most HISTORY_MAX_BYTES remain."""
    size = sum(map(len, parts))
    dropped = 0
    for index, stored in enumerate(parts):
        if size <= HISTORY_MAX_BYTES and (index == 0 or decode_part(stored).number == 0):
            break
        size -= len(stored)
        dropped = index + 1
    return dropped
