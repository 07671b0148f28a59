"""Divides the entry of a large copy into parts, so that no append holds the store for long. Pure.

A `restore_messages` or `branch_from_chat` adds a whole chat at once. The writer appends the parts one after the other.
All parts but the last hold only messages and what belongs to a message. The last part holds everything else, among it
the ack, and consumes the command, so a worker that dies before it leaves the command in the inbox. Until then each part
notes that the copy is not complete (`ImportGoesOn`): the chat is in no list, and the next owner drops what has arrived
(`chat/copies.py`).
"""

from itertools import groupby
from typing import NamedTuple

from threadcast.chat.copies import copy_id
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import ArgumentsHidden, Fact, ImportGoesOn, ResultWithheld
from threadcast.chat.import_files import PART_MAX_BYTES, PART_MAX_MESSAGES
from threadcast.chat.owner_state import OwnerState
from threadcast_protocol.framing.codec import Relayed, encode
from threadcast_protocol.wire.events import Event, MessageAdded

__all__ = ["CopyPart", "builder_of", "copy_parts"]

_EARLY = (MessageAdded, ResultWithheld, ArgumentsHidden)
"""The events and facts of the parts before the last: those that `drop_copy` takes back."""


class CopyPart(NamedTuple):
    """Events and facts that become one entry."""

    events: list[Event | Relayed]
    facts: list[Fact]


def copy_parts(entry: EntryBuilder) -> list[CopyPart]:
    """Divide the entry of a copy. A part has at most `PART_MAX_MESSAGES` events and facts and `PART_MAX_BYTES` bytes,
    or one larger event or fact. The events and facts that must be in the last part come on top."""
    parts = [CopyPart([], [])]
    count = size = 0
    for item in (*entry.events, *entry.facts):
        if not isinstance(item, _EARLY):
            continue
        length = len(encode(item))
        if count and (count >= PART_MAX_MESSAGES or size + length > PART_MAX_BYTES):
            parts.append(CopyPart([], []))
            count = size = 0
        if isinstance(item, MessageAdded):
            parts[-1].events.append(item)
        else:
            parts[-1].facts.append(item)
        count, size = count + 1, size + length
    if len(parts) == 1:
        return [CopyPart(entry.events, entry.facts)]
    name = copy_id(entry.copied_for)
    for number, part in enumerate(parts[:-1], 1):
        part.facts.append(ImportGoesOn(import_id=name, next_part=number))
    parts[-1].events.extend(event for event in entry.events if not isinstance(event, _EARLY))
    parts[-1].facts.extend(fact for fact in entry.facts if not isinstance(fact, _EARLY))
    parts[-1].facts.append(ImportGoesOn(import_id=name, next_part=0))
    return parts


def builder_of(part: CopyPart, before: OwnerState, entry: EntryBuilder) -> EntryBuilder:
    """Return the builder of the entry that adds `part` of `entry` to the state `before`, without acks."""
    builder = EntryBuilder(before, entry.now_ms, entry.new_id)
    for are_added, events in groupby(part.events, lambda event: isinstance(event, MessageAdded)):
        if are_added:  # together, since one after the other would take quadratic time
            builder.say_added([event for event in events if isinstance(event, MessageAdded)])
        else:
            for event in events:
                builder.say(event)
    for fact in part.facts:
        builder.note(fact)
    return builder
