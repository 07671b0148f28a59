"""Computes how many of a chat's oldest messages a model call leaves out (HIST-2, HIST-3, HIST-5).

The functions are pure. A chat may limit its history to a number of messages or of tokens. The oldest messages are then
left out. If possible, the rest begins with a user's message. The rest never contains a tool's result without its call.
`history/summaries.py` decides whether the omitted messages are summarised first. Nothing is deleted from the chat.
"""

from collections.abc import Sequence

from threadcast.chat.owner_state import OwnerState
from threadcast.chat.params import effective
from threadcast_protocol.wire.messages import JsonObject, Message, TextPart, text_of

__all__ = ["cut_point", "is_bounded", "shorten", "tokens_of"]

BYTES_PER_TOKEN = 4
"""The average number of bytes per token of English prose in today's tokenizers. Other scripts need more bytes per
letter, but also more tokens. This number is used only to limit histories, never to compute costs."""

ATTACHED_TOKENS = 1_000
"""The number of tokens that is counted for an image or another file that is not text. Providers charge this number for
an image of medium size."""


def is_bounded(state: OwnerState, defaults: JsonObject) -> bool:
    """Return whether the chat limits its history. If the chat does not, `cut_point` always returns 0."""
    return any(effective(state, key, defaults).value for key in ("max_history_messages", "max_history_tokens"))


def cut_point(state: OwnerState, defaults: JsonObject, messages: Sequence[Message], keep_from: int) -> int:
    """Return how many of the oldest `messages` exceed `max_history_messages` or `max_history_tokens`. The messages from
    the index `keep_from` on are never left out."""
    most = effective(state, "max_history_messages", defaults).value or 0
    at = shorten(messages, most, keep_from=keep_from) if most else 0
    tokens = effective(state, "max_history_tokens", defaults).value
    if not tokens:
        return at
    kept = 0
    for index in range(len(messages) - 1, at - 1, -1):
        kept += tokens_of(messages[index])
        if kept > tokens:
            return shorten(messages, len(messages) - index - 1, keep_from=keep_from)
    return at


def shorten(messages: Sequence[Message], most: int, *, keep_from: int | None = None) -> int:
    """Return how many of the oldest messages a view of about `most` messages leaves out (HIST-3, HIST-5).

    The view begins with the first user message among the newest `most` messages, if there is one. The view never begins
    between a call and its result. The messages from the index `keep_from` on are never left out.
    """
    spare = len(messages) - most
    if spare <= 0:
        return 0
    latest = len(messages) if keep_from is None else keep_from
    at = next((i for i in range(spare, len(messages)) if messages[i].role == "user"), None)
    if at is None:
        at = spare
        while at < len(messages) and messages[at].role == "tool":
            at += 1
    return min(at, latest)


def tokens_of(message: Message) -> int:
    """Return the approximate number of tokens of a message."""
    size = len(text_of(message.content).encode(errors="replace"))
    size += sum(len(call.function.arguments) for call in message.tool_calls)
    parts = message.content if isinstance(message.content, list) else []
    attached = sum(1 for part in parts if not isinstance(part, TextPart)) + len(message.attachments)
    return size // BYTES_PER_TOKEN + attached * ATTACHED_TOKENS + 1
