"""Frames that stand in no log: they have neither `seq` nor `id`, and are in no snapshot (PROTOCOL §4).

Who connects a moment later does not miss them, clients skip those that they do not know, and nobody who reads the log
ever sees one. `type` comes first in the JSON, as in events.
"""

import msgspec

from protocol.sse import transient_frame

__all__ = ["ChatRemoved", "Presence", "Transient", "Typing", "frame_of"]


class Transient(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all of them."""


class ChatRemoved(Transient, frozen=True, tag="chat_removed"):
    """Nothing more of this chat will come on a stream of many. `reason`: not_found (deleted, or another's), unfoldable
    (this server cannot read it), unavailable (it could not be opened; add it again), removed (as was asked)."""

    reason: str


class Presence(Transient, frozen=True, tag="presence"):
    """How many streams watch the chat and asked for presence, this one included; `names` of whose they are."""

    count: int
    names: list[str] | None = None


class Typing(Transient, frozen=True, tag="typing"):
    """Somebody began or stopped to write."""

    typing: bool
    by: str | None = None


_encoder = msgspec.json.Encoder()


def frame_of(chat_id: str, transient: Transient) -> bytes:
    """The block that tells it."""
    return transient_frame(chat_id, _encoder.encode(transient))
