"""msgspec encoders and decoders, made once: events, facts, acks and whole states to bytes and back.

All JSON. What cannot be decoded raises `msgspec.DecodeError`, whatever is wrong with it. An event's `type` always comes
first, so that a frame can be made by splicing (`sse.py`). A state is what a checkpoint holds; its growing texts are
written as plain strings.
"""

from typing import Any, TypeVar

import msgspec

from protocol.events import Event, Relayed, Snapshot
from protocol.facts import Fact
from protocol.state import ChatState
from protocol.text import GrowingText

__all__ = [
    "EntryAck",
    "decode_acks",
    "decode_event",
    "decode_events",
    "decode_facts",
    "decode_snapshot",
    "decode_state",
    "encode",
    "encode_state",
    "split_array",
]


class EntryAck(msgspec.Struct, frozen=True, array_like=True):
    """An entry's word on a command: [request id, accepted, final] (DISPATCH §3)."""

    request_id: str
    accepted: bool
    final: bool


def _to_plain(value: Any) -> Any:  # Any: msgspec's hook takes whatever it does not know
    if isinstance(value, GrowingText):
        return str(value)
    if isinstance(value, Relayed):
        return value.body
    raise NotImplementedError(f"{type(value).__name__} is no part of the protocol")


def _from_plain(wanted: type, value: Any) -> Any:  # Any: as above, the other way
    if wanted is GrowingText:
        if not isinstance(value, str):
            raise TypeError("a growing text is written as a string")  # becomes msgspec's ValidationError
        return GrowingText(value)
    raise NotImplementedError(f"{wanted.__name__} is no part of the protocol")


_T = TypeVar("_T")
_encoder = msgspec.json.Encoder(enc_hook=_to_plain)
_event: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_events: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[Event])
_facts: msgspec.json.Decoder[list[Fact]] = msgspec.json.Decoder(list[Fact])
_acks = msgspec.json.Decoder(list[EntryAck])
_raw_array = msgspec.json.Decoder(list[msgspec.Raw])
_snapshot = msgspec.json.Decoder(Snapshot)
_state = msgspec.json.Decoder(ChatState, dec_hook=_from_plain)


def encode(value: object) -> bytes:
    """JSON of any struct of the protocol, or of a list of them."""
    return _encoder.encode(value)


def decode_event(data: bytes | msgspec.Raw) -> Event:
    return _read(_event, data)


def decode_events(data: bytes) -> list[Event]:
    return _read(_events, data)


def decode_facts(data: bytes) -> list[Fact]:
    return _read(_facts, data)


def decode_acks(data: bytes) -> list[EntryAck]:
    return _read(_acks, data) if data else []


def split_array(data: bytes) -> list[msgspec.Raw]:
    """The elements of a JSON array as they stand, undecoded."""
    return _read(_raw_array, data)


def decode_snapshot(data: bytes) -> Snapshot:
    return _read(_snapshot, data)


def encode_state(state: ChatState) -> bytes:
    return _encoder.encode(state)


def decode_state(data: bytes) -> ChatState:
    return _read(_state, data)


def _read(decoder: "msgspec.json.Decoder[_T]", data: bytes | msgspec.Raw) -> _T:
    """msgspec lets these two through as they are; readers of a log must know one kind of damage."""
    try:
        return decoder.decode(data)
    except (UnicodeDecodeError, RecursionError) as wrong:
        raise msgspec.DecodeError(str(wrong)) from None
