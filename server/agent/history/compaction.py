"""How much of a history a model call leaves out (HIST-2, HIST-3, HIST-5). Pure arithmetic over messages.

A chat may bound its history in messages or in tokens. What is beyond goes from the beginning, in whole turns where that
can be: a view that begins with somebody's question makes sense to a model, and no result is shown without its call.
Whether what goes is summed up first is the business of `history/summaries.py`; nothing is ever deleted from the chat.
"""

from collections.abc import Sequence

from protocol.messages import JsonObject, Message, TextPart, text_of
from protocol.params import effective
from protocol.state import ChatState

__all__ = ["cut_point", "is_bounded", "shorten", "tokens_of"]

BYTES_PER_TOKEN = 4
"""Of English prose in the tokenizers of today; other scripts take more bytes for a letter and more tokens, too. Used
only to bound a history, never to bill one."""

ATTACHED_TOKENS = 1_000
"""An image or another file that is not text: what providers charge for a picture of middling size."""


def is_bounded(state: ChatState, defaults: JsonObject) -> bool:
    """May anything be beyond? Else every `cut_point` of this chat is 0."""
    return any(effective(state, key, defaults).value for key in ("max_history_messages", "max_history_tokens"))


def cut_point(state: ChatState, defaults: JsonObject, messages: Sequence[Message], keep_from: int) -> int:
    """How many of the oldest `messages` are beyond `max_history_messages` or `max_history_tokens`."""
    most = effective(state, "max_history_messages", defaults).value or 0
    at = shorten(messages, most, keep_from=keep_from) if most else 0
    tokens = effective(state, "max_history_tokens", defaults).value
    while tokens and at < keep_from and sum(map(tokens_of, messages[at:])) > tokens:
        at = shorten(messages, len(messages) - at - 1, keep_from=keep_from)
    return at


def shorten(messages: Sequence[Message], most: int, *, keep_from: int | None = None) -> int:
    """How many of the oldest messages a view of about `most` leaves out (HIST-3, HIST-5).

    It begins with a user message where there is one late enough, and never between a call and its result; what
    stands at `keep_from` and after it is never left out.
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
    """About how many tokens a model reads."""
    size = len(text_of(message.content).encode(errors="replace"))
    size += sum(len(call.function.arguments) for call in message.tool_calls)
    parts = message.content if isinstance(message.content, list) else []
    attached = sum(1 for part in parts if not isinstance(part, TextPart)) + len(message.attachments)
    return size // BYTES_PER_TOKEN + attached * ATTACHED_TOKENS + 1
