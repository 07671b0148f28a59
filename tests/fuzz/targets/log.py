"""Data that the product has written and reads back: events, facts, acks, states, entries. The data may be from a newer
version, or damaged. Decoding must then raise one kind of error, and no other error.
"""

from random import Random

import msgspec
from msgspec.structs import replace

from tests.fuzz import corpus
from tests.fuzz.target import Law, Target, held
from threadcast.chat.entry_codec import (
    decode_acks,
    decode_facts,
    decode_state,
    encode_state,
)
from threadcast.store.load import NewerVersion, fold_checked
from threadcast_protocol.fold.reducer import Gap
from threadcast_protocol.fold.snapshot import snapshot_of, state_from_snapshot
from threadcast_protocol.framing.codec import (
    decode_event,
    decode_events,
    decode_snapshot,
    encode,
    split_array,
)

__all__ = ["log_targets"]


def _event(data: bytes, random: Random) -> bool:
    try:
        event = decode_event(data)
    except msgspec.DecodeError:
        return False
    held(decode_event(encode(event)) == event, event)
    return True


def _events(data: bytes, random: Random) -> bool:
    try:
        events = decode_events(data)
    except msgspec.DecodeError:
        return False
    held(decode_events(encode(events)) == events, events)
    held(len(split_array(data)) == len(events), "an array has another length undecoded")
    return True


def _facts(data: bytes, random: Random) -> bool:
    try:
        facts = decode_facts(data)
    except msgspec.DecodeError:
        return False
    held(decode_facts(encode(facts)) == facts, facts)
    return True


def _acks(data: bytes, random: Random) -> bool:
    try:
        acks = decode_acks(data)
    except msgspec.DecodeError:
        return False
    held(decode_acks(encode(acks)) == acks, acks)
    return True


def _snapshot(data: bytes, random: Random) -> bool:
    try:
        snapshot = decode_snapshot(data)
    except msgspec.DecodeError:
        return False
    held(decode_snapshot(encode(snapshot)) == snapshot, snapshot)
    again = snapshot_of(state_from_snapshot("c1", snapshot, 1))
    held(snapshot_of(state_from_snapshot("c1", again, 1)) == again, "a snapshot of a snapshot differs", again)
    return True


def _state(data: bytes, random: Random) -> bool:
    try:
        state = decode_state(data)
    except msgspec.DecodeError:
        return False
    again = encode_state(state)
    held(encode_state(decode_state(again)) == again, "a checkpoint of a checkpoint differs", again)
    return True


def _entry_with(field: str) -> Law:
    """Return an entry of a real log with other bytes in one of its fields, folded onto the state that it followed."""

    def law(data: bytes, random: Random) -> bool:
        it = corpus.chat()
        at = random.randrange(len(it.entries))
        entry = replace(it.entries[at], **{field: data})
        try:
            state, _ = fold_checked(it.states[at], entry, with_facts=random.random() < 0.5)
        except (Gap, NewerVersion):
            return False
        encode(snapshot_of(state))
        encode_state(state)
        return True

    return law


def log_targets() -> list[Target]:
    entries = corpus.entries()
    lists = [entry.events for entry in entries]
    facts = [entry.facts for entry in entries if entry.facts]
    acks = [entry.acks for entry in entries if entry.acks]
    return [
        Target("event", _event, corpus.events()),
        Target("events", _events, lists),
        Target("facts", _facts, facts, weight=2),
        Target("acks", _acks, acks, weight=1),
        Target("snapshot", _snapshot, [encode(snapshot_of(state)) for state in corpus.chat().states[::3]], weight=2),
        Target("state", _state, corpus.states(), weight=2),
        Target("entry-events", _entry_with("events"), lists),
        Target("entry-facts", _entry_with("facts"), facts, weight=2),
    ]
