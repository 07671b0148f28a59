"""Encodes events and snapshots as JSON, and decodes them.

All decoders raise `msgspec.DecodeError` for damaged bytes of any kind. The `type` of an event is always encoded first,
so that `sse.py` can insert further keys before the `type`. Growing texts are encoded as plain strings.
"""

from typing import Any, TypeVar

import msgspec

from threadcast_protocol.fold.growing_text import GrowingText
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.events import Event, Snapshot
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
    "Relayed",
    "decode",
    "decode_event",
    "decode_events",
    "decode_snapshot",
    "encode",
    "split_array",
]


class Relayed:
    """A pass-through event with all its fields, before it is appended to the log. Decoders of the log return such an
    event as a member of `PassThrough`, without its fields."""

    __slots__ = ("body",)

    def __init__(self, kind: str, fields: JsonObject) -> None:
        self.body: JsonObject = {"type": kind, **{key: value for key, value in fields.items() if key != "type"}}


def _to_plain(value: Any) -> Any:  # Any: msgspec passes any object that it cannot encode
    if isinstance(value, GrowingText):
        return str(value)
    if isinstance(value, Relayed):
        return value.body
    raise NotImplementedError(f"{type(value).__name__} is no part of the protocol")


_T = TypeVar("_T")
_encoder = msgspec.json.Encoder(enc_hook=_to_plain)
_event: msgspec.json.Decoder[Event] = decoder(Event)
_events: msgspec.json.Decoder[list[Event]] = decoder(list[Event])
_raw_array = msgspec.json.Decoder(list[msgspec.Raw])
_snapshot: msgspec.json.Decoder[Snapshot] = decoder(Snapshot)


def encode(value: object) -> bytes:
    """Encode a struct of the protocol, or a list of such structs, as JSON."""
    return _encoder.encode(value)


def decode_event(data: bytes | msgspec.Raw) -> Event:
    """Decode one event."""
    return decode(_event, data)


def decode_events(data: bytes) -> list[Event]:
    """Decode a JSON array of events."""
    return decode(_events, data)


def split_array(data: bytes) -> list[msgspec.Raw]:
    """Return the elements of a JSON array as undecoded JSON."""
    return decode(_raw_array, data)


def decode_snapshot(data: bytes) -> Snapshot:
    """Decode a snapshot."""
    return decode(_snapshot, data)


def decode(decoder: "msgspec.json.Decoder[_T]", data: bytes | msgspec.Raw) -> _T:
    """Decode `data`; raise `msgspec.DecodeError` for damaged bytes of any kind.

    msgspec itself may also raise `UnicodeDecodeError` and `RecursionError`, which are converted here so that readers of
    a log catch a single error.
    """
    try:
        return decoder.decode(data)
    except (UnicodeDecodeError, RecursionError) as wrong:
        raise msgspec.DecodeError(str(wrong)) from None
