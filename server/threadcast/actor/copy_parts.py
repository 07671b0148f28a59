"""Divides the entry of a large copy into parts, so that no append holds the store for long. Pure.

A `restore_messages` or `branch_from_chat` adds a whole chat at once. The writer appends the parts one after the other.
Only the last part consumes the command, so a worker that dies before it leaves the command in the inbox. Until then
each part notes that the copy is not complete (`ImportGoesOn`): the chat is in no list, and the next owner begins the
copy anew (`chat/copies.py`).
"""

from itertools import groupby
from typing import NamedTuple

from threadcast.chat.copies import copy_id
from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.facts import Fact, ImportGoesOn
from threadcast.chat.import_files import PART_MAX_BYTES, PART_MAX_MESSAGES
from threadcast.chat.owner_state import OwnerState
from threadcast_protocol.framing.codec import Relayed, encode
from threadcast_protocol.wire.events import Event, MessageAdded

__all__ = ["CopyPart", "builder_of", "copy_parts"]


class CopyPart(NamedTuple):
    """Events and facts that become one entry."""

    events: list[Event | Relayed]
    facts: list[Fact]


def copy_parts(entry: EntryBuilder) -> list[CopyPart]:
    """Divide the entry of a copy: first its events, then its facts. A part has at most `PART_MAX_MESSAGES` of them and
    `PART_MAX_BYTES` bytes, or a single larger one. All parts but the last note which part follows, and the last one of
    several notes that the copy is complete."""
    parts = [CopyPart([], [])]
    count = size = 0
    for number, item in enumerate((*entry.events, *entry.facts)):
        length = len(encode(item))
        if count and (count >= PART_MAX_MESSAGES or size + length > PART_MAX_BYTES):
            parts.append(CopyPart([], []))
            count = size = 0
        if number < len(entry.events):
            parts[-1].events.append(entry.events[number])
        else:
            parts[-1].facts.append(entry.facts[number - len(entry.events)])
        count, size = count + 1, size + length
    if len(parts) > 1:
        for number, part in enumerate(parts, 1):
            following = number if number < len(parts) else 0
            part.facts.append(ImportGoesOn(import_id=copy_id(entry.copied_for), next_part=following))
    return parts


def builder_of(part: CopyPart, before: OwnerState, entry: EntryBuilder) -> EntryBuilder:
    """Return the builder of the entry that adds `part` of `entry` to the state `before`, without acks."""
    builder = EntryBuilder(before, entry.now_ms, entry.new_id)
    for are_messages, events in groupby(part.events, lambda event: isinstance(event, MessageAdded)):
        if are_messages:  # in linear time
            builder.say_added([event for event in events if isinstance(event, MessageAdded)])
        else:
            for event in events:
                builder.say(event)
    for fact in part.facts:
        builder.note(fact)
    return builder
