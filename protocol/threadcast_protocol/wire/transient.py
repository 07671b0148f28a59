"""Ephemeral frames, which are in no log or snapshot and have no `seq` or `id` (PROTOCOL §4).

A client that connects later does not need these frames, and clients skip unknown frames. The JSON begins with `type`,
as in events.
"""

import msgspec

from threadcast_protocol.framing.sse import transient_frame

__all__ = ["ChatRemoved", "Presence", "Transient", "Typing", "frame_of"]


class Transient(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base of all ephemeral frames."""


class ChatRemoved(Transient, frozen=True, tag="chat_removed"):
    """A stream of several chats sends no more frames of this chat. `reason` is not_found (the chat was deleted or is
    not yours), unfoldable (this server cannot read the chat), unavailable (the chat could not be opened; add it again)
    or removed (as the client asked)."""

    reason: str


class Presence(Transient, frozen=True, tag="presence"):
    """`count` is the number of streams that watch the chat and asked for presence, including this stream. `names` are
    the names of their users."""

    count: int
    names: list[str] | None = None


class Typing(Transient, frozen=True, tag="typing"):
    """A user began or stopped to type."""

    typing: bool
    by: str | None = None


_encoder = msgspec.json.Encoder()


def frame_of(chat_id: str, transient: Transient) -> bytes:
    """Return the SSE block of a frame about the chat `chat_id`."""
    return transient_frame(chat_id, _encoder.encode(transient))
