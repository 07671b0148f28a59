"""Folds the result of `Log.load` into a state. The fold begins with the checkpoint and checks that each entry follows
its predecessor (DISPATCH §5). Actors also fold the private facts; relays never do.

The log of a large chat is read in pages (`LOG_PAGE_BYTES`). Between two pages, the chat's owner may trim entries that
are not read yet. The log is then read again from the newer checkpoint.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVarTuple, Unpack

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from threadcast.chat.entries import FORMAT_VERSION, RawEntry
from threadcast.chat.entry_codec import decode_state
from threadcast.chat.entry_fold import fold_entry
from threadcast.chat.owner_state import OwnerState, Private, empty_owner_state
from threadcast.store.ports import Loaded, Log
from threadcast_protocol.fold.reducer import Gap
from threadcast_protocol.wire.errors import Unavailable
from threadcast_protocol.wire.events import Event
from threadcast_protocol.wire.ids import EntryId, Head

__all__ = [
    "Extent",
    "Folded",
    "NewerVersion",
    "extent_of",
    "fold_checked",
    "fold_loaded",
    "fold_whole",
    "in_thread_if",
    "load_folded",
]

_Args = TypeVarTuple("_Args")

THREAD_MIN_BYTES = 1_000_000
"""A page with more bytes is folded in a thread; folding a page of this size takes some 10 ms of the event loop."""

READS_MAX = 5
"""Maximum number of times that a log is read from the beginning. Few are needed, because an owner trims the log only
with a checkpoint, and a checkpoint is due when the log has doubled."""

PAGE_TRIES, PAGE_PAUSE_SECONDS = 3, 0.25
"""Maximum attempts to read one page, and the pause between them. A lost reply must not discard the pages that were read
before."""


class NewerVersion(Exception):
    """The log was written by a newer version of the product, so this process must not fold the log (DESIGN §2)."""


class Extent(NamedTuple):
    """The size of a log. `checkpoint` is the (id, position, bytes of the state) of the checkpoint, or None without a
    checkpoint. `entries` has the (id, position, bytes) of each entry after the checkpoint."""

    checkpoint: tuple[EntryId, int, int] | None
    entries: list[tuple[EntryId, int, int]]


class Folded(NamedTuple):
    state: OwnerState
    extent: Extent


def extent_of(loaded: Loaded) -> Extent:
    """Return the sizes of the checkpoint and of the entries in this page."""
    checkpoint = None
    if loaded.checkpoint is not None:
        head = Head.parse(loaded.checkpoint[0])
        checkpoint = head.entry_id, head.position, len(loaded.checkpoint[2])
    return Extent(checkpoint, _sizes_of(loaded.entries))


async def load_folded(store: Log, chat_id: str, *, with_facts: bool) -> Folded:
    """Return the present state of the chat. Raises Gap, NewerVersion, Unavailable, like `fold_whole`."""
    return await fold_whole(store, chat_id, await store.load(chat_id), with_facts=with_facts)


async def fold_whole(store: Log, chat_id: str, loaded: Loaded, *, with_facts: bool) -> Folded:
    """Read the pages that follow `loaded`, and return the state at `loaded.head`. If the log had to be read again, the
    returned state may be that of a later head.

    Raises:
        Gap, NewerVersion: the errors of `fold_loaded`.
        Unavailable: the store does not answer, or trims the log faster than it is read.
    """
    broken: tuple[str, str] | None = None
    for _ in range(READS_MAX):
        extent = extent_of(loaded)
        if loaded.is_whole:
            return Folded(await in_thread_if(_size_of(loaded), fold_loaded, chat_id, loaded, with_facts), extent)
        state = await in_thread_if(_size_of(loaded), _fold_first, chat_id, loaded, with_facts)
        while state.head != loaded.head:
            through = Head.parse(loaded.head).entry_id
            page = await _page(store, chat_id, through, after=extent.entries[-1][0])
            if not page or page[0].before != state.head:
                break
            extent.entries.extend(_sizes_of(page))
            size = sum(len(entry.events) for entry in page)
            state = await in_thread_if(size, _fold_page, state, page, with_facts)
        else:
            return Folded(state, extent)
        # A trim also replaces the checkpoint. So the same gap after the same checkpoint means that an entry is missing.
        seen_at = (loaded.checkpoint[0] if loaded.checkpoint is not None else "", state.head)
        if seen_at == broken:
            raise Gap(f"the log of {chat_id} has no entry after {state.head!r}")
        broken = seen_at
        loaded = await store.load(chat_id)
    raise Unavailable("the log of this chat is trimmed faster than it can be read; try again")


async def _page(store: Log, chat_id: str, through: EntryId, *, after: EntryId) -> list[RawEntry]:
    for _ in range(PAGE_TRIES - 1):
        try:
            return await store.read_log(chat_id, through, after=after)
        except Unavailable:
            await anyio.sleep(PAGE_PAUSE_SECONDS)
    return await store.read_log(chat_id, through, after=after)


def _sizes_of(entries: Sequence[RawEntry]) -> list[tuple[EntryId, int, int]]:
    return [(entry.entry_id, entry.position, len(entry.events) + len(entry.facts)) for entry in entries]


def _size_of(loaded: Loaded) -> int:
    return sum(len(entry.events) for entry in loaded.entries) + (len(loaded.checkpoint[2]) if loaded.checkpoint else 0)


async def in_thread_if(size_bytes: int, fold: Callable[[Unpack[_Args]], OwnerState], *args: *_Args) -> OwnerState:
    """Call `fold(*args)` and return its state. If `size_bytes` is above THREAD_MIN_BYTES, the call runs in a thread."""
    return await anyio.to_thread.run_sync(fold, *args) if size_bytes > THREAD_MIN_BYTES else fold(*args)


def fold_loaded(chat_id: str, loaded: Loaded, with_facts: bool) -> OwnerState:
    """Return the state at `loaded.head`, for a log that was loaded completely.

    Raises:
        Gap: an entry is missing, or the bytes are not a state; the chat must not be served from this log.
        NewerVersion: an entry or the checkpoint was written by a newer version of the product.
    """
    state = _fold_first(chat_id, loaded, with_facts)
    if state.head != loaded.head:
        raise Gap(f"{chat_id} folds to the head {state.head!r}, but its head is {loaded.head!r}")
    return state


def _fold_first(chat_id: str, loaded: Loaded, with_facts: bool) -> OwnerState:
    """Fold the checkpoint and the entries loaded with it."""
    state = empty_owner_state(chat_id)
    if loaded.checkpoint is not None:
        head, version, data = loaded.checkpoint
        _refuse_newer(version)
        try:
            state = decode_state(data)
        except msgspec.DecodeError as wrong:
            raise Gap(f"the checkpoint of {chat_id} is not a state: {wrong}") from wrong
        if state.head != head:
            raise Gap(f"the checkpoint of {chat_id} says {head!r} and holds {state.head!r}")
        if not with_facts:
            state = replace(state, private=Private())
    return _fold_page(state, loaded.entries, with_facts)


def _fold_page(state: OwnerState, page: Sequence[RawEntry], with_facts: bool) -> OwnerState:
    for entry in page:
        state, _ = fold_checked(state, entry, with_facts=with_facts)
    return state


def fold_checked(state: OwnerState, entry: RawEntry, *, with_facts: bool) -> tuple[OwnerState, Sequence[Event]]:
    """Fold one stored entry; an unreadable entry counts as missing. Raises Gap, NewerVersion."""
    _refuse_newer(entry.version)
    try:
        return fold_entry(state, entry, with_facts=with_facts)
    except msgspec.DecodeError as wrong:
        raise Gap(f"entry {entry.entry_id} cannot be read: {wrong}") from wrong


def _refuse_newer(version: int) -> None:
    if version > FORMAT_VERSION:
        raise NewerVersion(f"format {version} is newer than {FORMAT_VERSION}")
