"""From what `Store.load` gave to a folded state: checkpoint, then the entries after it, each checked against the one
before (DISPATCH §5). Actors fold the private facts too, relays never.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from protocol.codec import decode_state
from protocol.entries import FORMAT_VERSION, RawEntry
from protocol.events import Event
from protocol.reducer import Gap, fold_entry
from protocol.state import ChatState, Private, empty_state
from server.store.port import Loaded

__all__ = ["NewerVersion", "fold_checked", "fold_loaded"]


class NewerVersion(Exception):
    """Written by a newer version of the product; this process must not fold it (DESIGN §2)."""


def fold_loaded(chat_id: str, loaded: Loaded, *, with_facts: bool) -> ChatState:
    """The state at `loaded.head`.

    Raises:
        Gap: a hole, or bytes that are no state; the chat must not be served from this.
        NewerVersion: an entry or the checkpoint is newer than this process.
    """
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
    for entry in loaded.entries:
        state, _ = fold_checked(state, entry, with_facts=with_facts)
    if state.head != loaded.head:
        raise Gap(f"{chat_id} folds to {state.head!r}, its head is {loaded.head!r}")
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
