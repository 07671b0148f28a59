"""One connection's bytes to events, in unbroken order. Pure: no socket, no clock.

`Reading` parses frames, wherever the bytes are cut, and holds the gap rule of PROTOCOL §4: an event that is not the
next one of its chat means that something was missed, and then only a snapshot helps. `event_of` makes a typed event of
an arrival. The one rule: what this version does not know is handed on as it came, and never an error.
"""

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from protocol.codec import decode_event, decode_snapshot
from protocol.events import Event, PassThrough, Snapshot
from protocol.ids import Position
from protocol.messages import JsonObject
from protocol.places import parse_places
from protocol.sse import CommentFrame, EventFrame, FrameParser, RetryFrame
from protocol.transient import ChatRemoved, Presence, Typing

__all__ = ["Arrival", "Beat", "ChatEvent", "Missed", "RawEvent", "Reading", "event_of", "position_of"]


class RawEvent(msgspec.Struct, frozen=True):
    """An event that this version has no struct for, or one of a tool's own (`browser_…`); `fields` are all of it. It
    changes nothing in the state."""

    type: str
    fields: JsonObject


ChatEvent: TypeAlias = Snapshot | Event | ChatRemoved | Presence | Typing | RawEvent


class Arrival(msgspec.Struct, frozen=True):
    """An event of a chat as it stands on the wire. `seq` is None for one that stands in no log; `event_id` is where
    the reader stands after it."""

    chat_id: str
    type: str
    seq: int | None
    data: str
    event_id: str


class Beat(msgspec.Struct, frozen=True):
    """A heartbeat: the line is alive, and all that was there has been sent."""


class Missed(Exception):
    """What came cannot be continued with; start again from a snapshot."""


class _Head(msgspec.Struct, frozen=True):
    chat_id: str = ""
    seq: str | None = None
    type: str = ""


_heads = msgspec.json.Decoder(_Head)
_transients: msgspec.json.Decoder[ChatRemoved | Presence | Typing] = msgspec.json.Decoder(
    ChatRemoved | Presence | Typing
)
_SEQ_MAX_DIGITS = 15
"""As `protocol/ids.py` reads positions; a longer number is not meant."""


class Reading:
    """One connection. `seqs` is the seq that each chat's reader stands at; it is shared with the connections before and
    after, and kept up to date. A chat that is not in it begins with a snapshot, unless `begins_anywhere`.

    `goodbye_seconds` is how long the server asks us to stay away, once the connection has ended: the `retry` that came
    last, or 0 when anything came after it (PROTOCOL §4).
    """

    def __init__(self, seqs: dict[str, int], *, begins_anywhere: bool = False) -> None:
        self._seqs = seqs
        self._begins_anywhere = begins_anywhere
        self.goodbye_seconds = 0.0
        self._bases: dict[str, int] = {}
        self._parser = FrameParser()

    def feed(self, chunk: bytes) -> Iterator[Arrival | Beat]:
        """What these bytes bring.

        Raises:
            Missed: an event is not the next one of its chat.
            TooLarge: a frame is larger than any that a server sends.
        """
        for frame in self._parser.feed(chunk):
            self.goodbye_seconds = frame.milliseconds / 1000 if isinstance(frame, RetryFrame) else 0.0
            match frame:
                case EventFrame() if (arrival := _arrival(frame)) is not None:
                    self._check(arrival)
                    yield arrival
                case CommentFrame():
                    yield Beat()
                case _:
                    pass

    def _check(self, arrival: Arrival) -> None:
        seq = arrival.seq
        if seq is None:
            return
        before = self._seqs.get(arrival.chat_id)
        if before is None and self._begins_anywhere:
            before = seq - 1
        is_next = seq == 0 if arrival.type == "snapshot" else before is not None and seq == before + 1
        if not is_next:
            raise Missed(f"event {seq} came after {before}")
        if (place := Position.parse(arrival.event_id)) is not None:
            base = self._bases.get(arrival.chat_id, place.base)
            if place.seq != seq or (base != place.base and seq != 0):
                raise Missed(f"event {seq} after {before} counts from another snapshot")
            self._bases[arrival.chat_id] = place.base
        self._seqs[arrival.chat_id] = seq


def _arrival(frame: EventFrame) -> Arrival | None:
    """None for what is nothing of ours."""
    try:
        head = _heads.decode(frame.data)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    if head.seq is None:
        return Arrival(head.chat_id, head.type, None, frame.data, frame.last_event_id) if head.type else None
    if not (head.seq.isascii() and head.seq.isdecimal() and len(head.seq) <= _SEQ_MAX_DIGITS):
        raise Missed(f"event {head.seq[:20]!r} has no number")
    return Arrival(head.chat_id, head.type, int(head.seq), frame.data, frame.last_event_id)


def event_of(arrival: Arrival) -> ChatEvent:
    """The typed event.

    Raises:
        Missed: a snapshot that cannot be read; without it there is nothing to go on from.
    """
    data = arrival.data.encode()
    try:
        if arrival.seq is None:
            return _transients.decode(data)
        if arrival.type == "snapshot":
            return decode_snapshot(data)
        event = decode_event(data)
    except msgspec.MsgspecError as wrong:
        if arrival.type == "snapshot":
            raise Missed(f"a snapshot that this client cannot read: {wrong}") from None
        return RawEvent(arrival.type, msgspec.json.decode(data))
    return RawEvent(arrival.type, msgspec.json.decode(data)) if isinstance(event, PassThrough) else event


def position_of(event_id: str, chat_id: str) -> int | None:
    """The position that an SSE id tells for a chat; None for an id of a form that this version does not know."""
    place = Position.parse(event_id) or parse_places(event_id, [chat_id]).get(chat_id)
    return None if place is None else place.position
