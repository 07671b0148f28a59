"""Computes how much of a history a model call leaves out (HIST-2, HIST-3, HIST-5). Pure.

A chat may bound its history in messages or in tokens. The oldest messages are left out, if possible so that the rest
begins with a user's message, and never so that a tool's result is shown without its call. `history/summaries.py`
decides whether the messages are summed up first. Nothing is deleted from the chat.
"""

from collections.abc import Sequence

from threadcast.chat.owner_state import OwnerState
from threadcast.chat.params import effective
from threadcast_protocol.wire.messages import JsonObject, Message, TextPart, text_of

__all__ = ["cut_point", "is_bounded", "shorten", "tokens_of"]

BYTES_PER_TOKEN = 4
"""The average bytes of a token in English prose, in today's tokenizers. Other scripts need more bytes for a letter, but
also more tokens. The number is used only to bound histories, never for costs."""

ATTACHED_TOKENS = 1_000
"""The tokens that are counted for an image or another file that is not text: the number that providers charge for an
image of medium size."""


def is_bounded(state: OwnerState, defaults: JsonObject) -> bool:
    """Return whether the chat bounds its history. If not, each `cut_point` is 0."""
    return any(effective(state, key, defaults).value for key in ("max_history_messages", "max_history_tokens"))


def cut_point(state: OwnerState, defaults: JsonObject, messages: Sequence[Message], keep_from: int) -> int:
    """Return how many of the oldest `messages` exceed `max_history_messages` or `max_history_tokens`."""
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

    The view begins with a user message if there is one late enough, and never between a call and its result. The
    messages from `keep_from` on are never left out.
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
