"""Folds an entry of the log: its public events, its private facts and its fence.

Actors fold entries with facts, and relays fold entries without facts. All functions are pure.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from threadcast.chat.entries import RawEntry
from threadcast.chat.entry_codec import decode_facts
from threadcast.chat.fact_fold import fold_fact
from threadcast.chat.facts import Fact
from threadcast.chat.owner_state import LIVES_KEPT, OwnerState, Private
from threadcast_protocol.fold.reducer import Gap, reduce_all
from threadcast_protocol.framing.codec import decode_events
from threadcast_protocol.wire import events as ev

__all__ = ["fold_entry"]

_NO_PRIVATE = Private()


def fold_entry(state: OwnerState, entry: RawEntry, *, with_facts: bool) -> tuple[OwnerState, Sequence[ev.Event]]:
    """Return the state after `entry`, and the events of the entry. Relays fold without facts.

    Raises:
        Gap: the entry does not continue the history of `state`.
    """
    if entry.before != state.head:
        raise Gap(f"entry {entry.entry_id} follows {entry.before!r}, not {state.head!r}")
    events = decode_events(entry.events)
    if entry.position != state.position + len(events):
        raise Gap(f"entry {entry.entry_id} ends at position {entry.position}, not {state.position + len(events)}")
    state = reduce_all(state, events)
    facts: Sequence[Fact] = decode_facts(entry.facts) if with_facts and entry.facts else ()
    private = state.private
    for fact in facts:
        private = fold_fact(private, fact)
    lives = state.lives
    if entry.fence is not None:
        lives = (*lives, (entry.entry_id.epoch, entry.position + 1))[-LIVES_KEPT:]
        if entry.fence.why == "takeover":
            private = replace(private, attempts=private.attempts + 1)
    return (
        replace(
            state,
            head=entry.head,
            version=max(state.version, entry.version),
            epoch=entry.entry_id.epoch,
            position=entry.position,
            lives=lives,
            private=private if with_facts else _NO_PRIVATE,
        ),
        events,
    )
