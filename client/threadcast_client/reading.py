"""Parses the bytes of one connection into events and detects gaps. The module is pure: it does no I/O.

`Reading` parses frames and applies the gap rule of PROTOCOL §4: an event that is not the next event of its chat means
that events were missed, so the chat must begin again with a snapshot. `event_of` turns an arrival into a typed event.
Unknown events are passed on unchanged and are not an error.
"""

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from threadcast_protocol.fold.reducer import Gap, reduce
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.framing.codec import decode_event, decode_snapshot
from threadcast_protocol.framing.sse import CommentFrame, EventFrame, FrameParser, RetryFrame
from threadcast_protocol.framing.stream_ids import parse_stream_ids
from threadcast_protocol.wire.events import Ack, Event, PassThrough, Snapshot
from threadcast_protocol.wire.ids import Position
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.transient import ChatRemoved, Presence, Typing

__all__ = [
    "Arrival",
    "Beat",
    "ChatEvent",
    "Missed",
    "RawEvent",
    "Reading",
    "acks_of",
    "event_of",
    "folded",
    "position_of",
]


class RawEvent(msgspec.Struct, frozen=True):
    """An event without a struct in this version, or an event that a tool defines (`browser_…`). Such an event does not
    change the state. `fields` is the whole JSON object."""

    type: str
    fields: JsonObject


ChatEvent: TypeAlias = Snapshot | Event | ChatRemoved | Presence | Typing | RawEvent


class Arrival(msgspec.Struct, frozen=True):
    """An event of a chat as JSON text (`data`). `seq` is None for an event that is not in the chat's log. `event_id` is
    the id from which a reader resumes after this event."""

    chat_id: str
    type: str
    seq: int | None
    data: str
    event_id: str


class Beat(msgspec.Struct, frozen=True):
    """A heartbeat: the connection works, and the server has sent all earlier events."""


class Missed(Exception):
    """Events were missed or cannot be read. The chat must begin again with a snapshot."""


class _Head(msgspec.Struct, frozen=True):
    chat_id: str = ""
    seq: str | None = None
    type: str = ""


_heads = msgspec.json.Decoder(_Head)
_transients: msgspec.json.Decoder[ChatRemoved | Presence | Typing] = msgspec.json.Decoder(
    ChatRemoved | Presence | Typing
)
_SEQ_MAX_DIGITS = 15
"""The longest `seq`, as long as the positions that `wire/ids.py` reads."""


class Reading:
    """The reader of one connection.

    `seqs` maps each chat to the `seq` of its last event; successive connections share and update it. A chat that is not
    in `seqs` must begin with a snapshot, unless `begins_anywhere` is true. `resumed_from` is the id that the connection
    was opened with; an event whose `seq` counts from another snapshot than this id counts as a gap.

    `goodbye_seconds` is the pause that the server requests at the end of the connection: the time of a final `retry`,
    or 0 if anything followed the `retry` (PROTOCOL §4).
    """

    def __init__(self, seqs: dict[str, int], *, begins_anywhere: bool = False, resumed_from: str = "") -> None:
        self._seqs = seqs
        self._begins_anywhere = begins_anywhere
        self._resumed_from = Position.parse(resumed_from)
        self.goodbye_seconds = 0.0
        self._bases: dict[str, int] = {}
        self._parser = FrameParser()

    def feed(self, chunk: bytes) -> Iterator[Arrival | Beat]:
        """Yield the events and heartbeats that these bytes complete.

        Raises:
            Missed: an event is not the next event of its chat.
            TooLarge: a frame is larger than the largest frame of a server.
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
        if (stream_position := Position.parse(arrival.event_id)) is not None:
            base = self._bases.get(arrival.chat_id, (self._resumed_from or stream_position).base)
            if stream_position.seq != seq or (base != stream_position.base and seq != 0):
                raise Missed(f"event {seq} after {before} counts from another snapshot")
            self._bases[arrival.chat_id] = stream_position.base
        self._seqs[arrival.chat_id] = seq


def _arrival(frame: EventFrame) -> Arrival | None:
    """Return the event of a frame; None if the frame is not an event of PROTOCOL §5. Raises Missed."""
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
    """Return the typed event of an arrival.

    Raises:
        Missed: the arrival is a snapshot that cannot be read.
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
            raise Missed(f"this client cannot read a snapshot: {wrong}") from None
        return RawEvent(arrival.type, msgspec.json.decode(data))
    return RawEvent(arrival.type, msgspec.json.decode(data)) if isinstance(event, PassThrough) else event


def folded(state: ChatState, event: Event) -> ChatState:
    """Fold the next event. Raises Missed if the event does not fit the state, which a correct server never sends."""
    try:
        return reduce(state, state.position + 1, event)
    except (Gap, KeyError, IndexError) as wrong:
        raise Missed(f"an event does not fit the state: {wrong}") from None


def acks_of(snapshot: Snapshot) -> dict[str, Ack]:
    """Return the last acks in a snapshot, by request id. A message or a queued command without an ack counts as acked
    with `queued` (PROTOCOL §5)."""
    last = {ack.client_request_id: ack for ack in snapshot.recent_acks}
    shown = [message.client_request_id for message in snapshot.messages]
    shown += [item.client_request_id for item in snapshot.runtime.queued_items]
    for request_id in shown:
        if request_id:
            last.setdefault(request_id, Ack(request_id, True, {"queued": True}))
    return last


def position_of(event_id: str, chat_id: str) -> int | None:
    """Return the position of a chat in an SSE id; None if this version does not know the form of the id."""
    stream_position = Position.parse(event_id) or parse_stream_ids(event_id, [chat_id]).get(chat_id)
    return None if stream_position is None else stream_position.position
