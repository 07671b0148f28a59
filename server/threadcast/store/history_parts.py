"""Encodes the older events of a chat in compressed parts, and folds these parts into states. All functions are pure.

When a chat comes to rest, its checkpoint replaces its entries, and the events of these entries are added to the
history. `history.py` uses the history to return the chat's state at any position. The history has no facts, acks or
digests, because no owner continues from an earlier state. The history is a list of *parts*; each part has some hundred
events. A *segment* is a sequence of parts that begins with the state before its first event. So the oldest segments can
be deleted, and a new segment can begin after events that were trimmed from the log.

A stored part has a line `<number> <first> <version> <segment bytes> <head>`, followed by packed lines (`packing.py`).
The first packed line of part 0 is the state before the segment; the line is empty for a new chat. Each epoch in the
part has a line `<epoch> <f or -> <events>`, with `f` if the fence of a new owner begins the epoch in this part.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from threadcast.chat.entries import FORMAT_VERSION, RawEntry
from threadcast.chat.entry_codec import decode_state, encode_state
from threadcast.chat.owner_state import LIVES_KEPT, OwnerState, Private, empty_owner_state
from threadcast.store.load import NewerVersion
from threadcast.store.packing import Packed
from threadcast_protocol.fold.reducer import Gap, reduce_all, reduce_event
from threadcast_protocol.framing.codec import decode_events
from threadcast_protocol.wire.ids import Head

__all__ = [
    "PART_BYTES",
    "Part",
    "continued",
    "decode_part",
    "encode_part",
    "first_part",
    "fold_part",
    "next_part",
]

PART_BYTES = 192_000
"""The bytes after which a part is complete. A smaller part is written again, with the new events, each time the chat
comes to rest. This takes 0.6 ms for a part of 143 kB, which are the events of 50 short exchanges. Packed in parts of
32, 64 and 128 kB, these events take 9.8, 7.8 and 6.7 kB; in a single part they take 5.6 kB."""

STATE_MAX_BYTES = 1_000_000
"""Maximum bytes of the state with which a segment begins, because the history must stay small compared with the
checkpoint."""


class Part(msgspec.Struct, frozen=True):
    """Consecutive events. `number` counts the parts of a segment; `first` is the position before the first event;
    `version` is the largest format version in the part; `segment_bytes` is the uncompressed size of the segment up to
    the end of this part; `head` is the head string after the last entry; `packed` is the packed form of the lines."""

    number: int
    first: int
    version: int
    segment_bytes: int
    head: str
    packed: bytes

    @property
    def last(self) -> int:
        """The position of the last event."""
        return Head.parse(self.head).position

    @property
    def size_bytes(self) -> int:
        """The uncompressed size in bytes. Raises Gap when the bytes are not a part."""
        try:
            return Packed.size_of(self.packed)
        except ValueError as wrong:
            raise Gap(f"a stored part of the history cannot be read: {wrong}") from None

    def content(self) -> Packed:
        """Return the decoded lines. Raises Gap when the bytes are not a part."""
        try:
            return Packed.decode(self.packed)
        except (ValueError, MemoryError) as wrong:
            raise Gap(f"a stored part of the history cannot be read: {wrong}") from None


def first_part(before: OwnerState | None, entries: Sequence[RawEntry]) -> Part | None:
    """Return the first part of a segment. `before` is the state before the entries, or None for a new chat. Returns
    None if the encoded state is larger than STATE_MAX_BYTES."""
    base = b"" if before is None else encode_state(replace(before, private=Private()))
    if len(base) > STATE_MAX_BYTES:
        return None
    position, version = (before.position, before.version) if before is not None else (0, 0)
    return _part(0, position, version, 0, Packed(), entries, base + b"\n")


def next_part(last: Part, entries: Sequence[RawEntry]) -> Part:
    """Return the part of the same segment after `last`."""
    return _part(last.number + 1, last.last, 0, last.segment_bytes, Packed(), entries)


def continued(last: Part, entries: Sequence[RawEntry]) -> Part:
    """Return `last` with these entries added. Raises Gap when `last` cannot be read."""
    content = last.content()
    return _part(last.number, last.first, last.version, last.segment_bytes - content.size_bytes, content, entries)


def _part(
    number: int,
    first: int,
    version: int,
    bytes_before: int,
    content: Packed,
    entries: Sequence[RawEntry],
    base: bytes = b"",
) -> Part:
    try:
        content = content.plus(base + b"".join(_lines_of(entries)))
    except ValueError as wrong:
        raise Gap(f"the events before {entries[-1].head} cannot be packed: {wrong}") from None
    return Part(
        number,
        first,
        max(version, *(entry.version for entry in entries)),
        bytes_before + content.size_bytes,
        entries[-1].head,
        content.encode(),
    )


def _lines_of(entries: Iterable[RawEntry]) -> Iterable[bytes]:
    epoch: int | None = None
    begins = False
    events: list[bytes] = []
    for entry in entries:
        if entry.fence is not None or entry.entry_id.epoch != epoch:
            if epoch is not None:
                yield _line(epoch, begins, events)
            epoch, begins, events = entry.entry_id.epoch, entry.fence is not None, []
        if len(entry.events) > 2:
            events.append(entry.events[1:-1])
    if epoch is not None:
        yield _line(epoch, begins, events)


def _line(epoch: int, begins: bool, events: list[bytes]) -> bytes:
    return b"%d %s [%s]\n" % (epoch, b"f" if begins else b"-", b",".join(events))  # JSON has no raw line breaks


def encode_part(part: Part) -> bytes:
    """Return the stored form of the part."""
    line = f"{part.number} {part.first} {part.version} {part.segment_bytes} {part.head}\n"
    return line.encode() + part.packed


def decode_part(stored: bytes) -> Part:
    """Return the part of a stored form. Raises Gap when the bytes are not a part, NewerVersion when a newer version of
    the product wrote the part."""
    line, _, packed = stored.partition(b"\n")
    try:
        number, first, version, size, head = line.decode("ascii").split(" ", 4)
        Head.parse(head)
        part = Part(int(number), int(first), int(version), int(size), head, packed)
    except ValueError as wrong:
        raise Gap(f"a stored part of the history cannot be read: {wrong}") from None
    if part.version > FORMAT_VERSION:
        raise NewerVersion(f"format {part.version} is newer than {FORMAT_VERSION}")
    return part


def fold_part(chat_id: str, state: OwnerState | None, part: Part, position: int) -> OwnerState:
    """Return the state at `position`, or at the end of the part if the part ends before `position`. `state` is the
    state before the part, or None for the first part of a segment, which contains this state. Raises Gap when the part
    and the state do not fit together."""
    content = part.content()
    try:
        lines = content.text().split(b"\n")[:-1]
        if part.number == 0:
            base = lines.pop(0)
            state = decode_state(base) if base else empty_owner_state(chat_id)
        if state is None or state.position != part.first:
            raise Gap(f"a part of the history of {chat_id} does not follow the part before it")
        for line in lines:
            epoch, begins, events = line.split(b" ", 2)
            state = _fold_life(state, int(epoch), begins == b"f", events, position)
            if state.position == position < part.last:
                return state
    except (msgspec.DecodeError, ValueError) as wrong:
        raise Gap(f"the history of {chat_id} cannot be read: {wrong}") from wrong
    if state.position != part.last:
        raise Gap(f"a part of the history of {chat_id} ends at {state.position}, not at {part.last}")
    return replace(state, head=part.head, version=max(state.version, part.version))


def _fold_life(state: OwnerState, epoch: int, begins: bool, raw: bytes, position: int) -> OwnerState:
    """Fold the events of one line up to `position`. A fence at `position` is included."""
    lives = (*state.lives, (epoch, state.position + 1))[-LIVES_KEPT:] if begins else state.lives
    events = decode_events(raw)
    if state.position + len(events) <= position:
        after = reduce_all(state, events)
    else:
        events, after = events[: position - state.position], state
        for event in events:
            after = reduce_event(after, event)
    return replace(after, epoch=epoch, lives=lives, position=state.position + len(events))
