"""From what `Store.load` gave to a folded state: checkpoint, then the entries after it, each checked against the one
before (DISPATCH §5). Actors fold the private facts too, relays never.

The log of a large chat is read in pages (`LOG_PAGE_BYTES`). Between two of them its owner may trim what is still to be
read; then the reading begins again with the newer checkpoint.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVarTuple, Unpack

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from protocol.codec import decode_state
from protocol.entries import FORMAT_VERSION, RawEntry
from protocol.errors import Unavailable
from protocol.events import Event
from protocol.ids import EntryId, Head
from protocol.reducer import Gap, fold_entry
from protocol.state import ChatState, Private, empty_state
from server.store.port import Loaded, Store

__all__ = [
    "Extent",
    "Folded",
    "NewerVersion",
    "entries_after",
    "extent_of",
    "fold_checked",
    "fold_loaded",
    "fold_whole",
    "in_thread_if",
    "load_folded",
]

_Args = TypeVarTuple("_Args")

THREAD_MIN_BYTES = 1_000_000
"""A larger page is folded in a thread; a page of this size takes some 10 ms of the event loop."""

READS_MAX = 5
"""How often a reading begins again. An owner trims only with a checkpoint, which is due when the log has doubled."""

PAGE_TRIES, PAGE_PAUSE_SECONDS = 3, 0.25
"""How often one page is asked for, so that one lost reply does not lose all the pages before it."""


class NewerVersion(Exception):
    """Written by a newer version of the product; this process must not fold it (DESIGN §2)."""


class Extent(NamedTuple):
    """How large a log is: of the checkpoint (id, position, bytes of the state), None without one, and of each entry
    after it (id, position, bytes)."""

    checkpoint: tuple[EntryId, int, int] | None
    entries: list[tuple[EntryId, int, int]]


class Folded(NamedTuple):
    state: ChatState
    extent: Extent


def extent_of(loaded: Loaded) -> Extent:
    """Of the checkpoint and this page."""
    checkpoint = None
    if loaded.checkpoint is not None:
        head = Head.parse(loaded.checkpoint[0])
        checkpoint = head.entry_id, head.position, len(loaded.checkpoint[2])
    return Extent(checkpoint, _sizes_of(loaded.entries))


async def load_folded(store: Store, chat_id: str, *, with_facts: bool) -> Folded:
    """Return the present state of the chat. Raises Gap, NewerVersion, Unavailable, as `fold_whole`."""
    return await fold_whole(store, chat_id, await store.load(chat_id), with_facts=with_facts)


async def fold_whole(store: Store, chat_id: str, loaded: Loaded, *, with_facts: bool) -> Folded:
    """Return the state at `loaded.head`, reading the pages after `loaded`; at a later head if it had to begin again.

    Raises:
        Gap, NewerVersion: as `fold_loaded`.
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
        # A trim moves the checkpoint, too. With the same checkpoint and the same break, something is missing.
        place = (loaded.checkpoint[0] if loaded.checkpoint is not None else "", state.head)
        if place == broken:
            raise Gap(f"the log of {chat_id} has nothing that follows on {state.head!r}")
        broken = place
        loaded = await store.load(chat_id)
    raise Unavailable("the log of this chat is trimmed faster than it can be read; try again")


async def entries_after(store: Store, chat_id: str, loaded: Loaded, head: str) -> list[RawEntry]:
    """Return the entries after `head`, up to the head of `loaded`; [] if some are gone, or they exceed one page."""
    entries = loaded.entries
    if not loaded.is_whole:
        through = Head.parse(loaded.head).entry_id
        entries = await store.read_log(chat_id, through, after=Head.parse(head).entry_id)
        if not entries or entries[-1].head != loaded.head:
            return []
    befores = [entry.before for entry in entries]
    return entries[befores.index(head) :] if head in befores else []


async def _page(store: Store, chat_id: str, through: EntryId, *, after: EntryId) -> list[RawEntry]:
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


async def in_thread_if(size_bytes: int, fold: Callable[[Unpack[_Args]], ChatState], *args: *_Args) -> ChatState:
    """Return what `fold` returns; above THREAD_MIN_BYTES `fold` runs in a thread."""
    return await anyio.to_thread.run_sync(fold, *args) if size_bytes > THREAD_MIN_BYTES else fold(*args)


def fold_loaded(chat_id: str, loaded: Loaded, with_facts: bool) -> ChatState:
    """The state at `loaded.head`, of what was loaded whole.

    Raises:
        Gap: a hole, or bytes that are no state; the chat must not be served from this.
        NewerVersion: an entry or the checkpoint is newer than this process.
    """
    state = _fold_first(chat_id, loaded, with_facts)
    if state.head != loaded.head:
        raise Gap(f"{chat_id} folds to {state.head!r}, its head is {loaded.head!r}")
    return state


def _fold_first(chat_id: str, loaded: Loaded, with_facts: bool) -> ChatState:
    """The checkpoint and the entries that came with it."""
    state = empty_state(chat_id)
    if loaded.checkpoint is not None:
        head, version, data = loaded.checkpoint
        _refuse_newer(version)
        try:
            state = decode_state(data)
        except msgspec.DecodeError as wrong:
            raise Gap(f"the checkpoint of {chat_id} is no state: {wrong}") from wrong
        if state.head != head:
            raise Gap(f"the checkpoint of {chat_id} says {head!r} and holds {state.head!r}")
        if not with_facts:
            state = replace(state, private=Private())
    return _fold_page(state, loaded.entries, with_facts)


def _fold_page(state: ChatState, page: Sequence[RawEntry], with_facts: bool) -> ChatState:
    for entry in page:
        state, _ = fold_checked(state, entry, with_facts=with_facts)
    return state


def fold_checked(state: ChatState, entry: RawEntry, *, with_facts: bool) -> tuple[ChatState, Sequence[Event]]:
    """`fold_entry` for one stored entry; what cannot be read counts as a hole. Raises Gap, NewerVersion."""
    _refuse_newer(entry.version)
    try:
        return fold_entry(state, entry, with_facts=with_facts)
    except msgspec.DecodeError as wrong:
        raise Gap(f"entry {entry.entry_id} cannot be read: {wrong}") from wrong


def _refuse_newer(version: int) -> None:
    if version > FORMAT_VERSION:
        raise NewerVersion(f"format {version} is newer than {FORMAT_VERSION}")
