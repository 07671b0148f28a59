"""Decodes the facts and acks of the log, and encodes and decodes the states of checkpoints.

The format is JSON. All functions that decode raise `msgspec.DecodeError` if the bytes are damaged.
"""

from typing import Any

import msgspec

from threadcast.chat.entries import EntryAck
from threadcast.chat.facts import Fact
from threadcast.chat.owner_state import OwnerState
from threadcast_protocol.fold.growing_text import GrowingText
from threadcast_protocol.framing.codec import decode, encode
from threadcast_protocol.wire.decoders import decoder

__all__ = ["decode_acks", "decode_facts", "decode_state", "encode_state"]


def _from_plain(wanted: type, value: Any) -> Any:  # Any: decoded JSON
    if wanted is GrowingText:
        if not isinstance(value, str):
            raise TypeError("a growing text is written as a string")  # becomes msgspec's ValidationError
        return GrowingText(value)
    raise NotImplementedError(f"{wanted.__name__} is no part of the protocol")


_facts: msgspec.json.Decoder[list[Fact]] = decoder(list[Fact])
_acks = msgspec.json.Decoder(list[EntryAck])
_state: msgspec.json.Decoder[OwnerState] = decoder(OwnerState, dec_hook=_from_plain)


def decode_facts(data: bytes) -> list[Fact]:
    """Decode the facts of an entry."""
    return decode(_facts, data)


def decode_acks(data: bytes) -> list[EntryAck]:
    """Decode the acks of an entry. Empty bytes mean no acks."""
    return decode(_acks, data) if data else []


def encode_state(state: OwnerState) -> bytes:
    """Encode a state as the JSON of a checkpoint."""
    return encode(state)


def decode_state(data: bytes) -> OwnerState:
    """Decode the state of a checkpoint."""
    return decode(_state, data)
