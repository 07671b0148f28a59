"""Compares the messages of a request with the path of a chat. All functions are pure.

Clients of OpenAI's API see the rounds of a run as one answer, without the server's tool calls. Both sides are compared
as turns of the user and of the assistant, where consecutive messages of one role are one turn.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from threadcast.compat.openai.chunks import PAUSE_MARK, ROUND_SEPARATOR
from threadcast_protocol.wire.messages import JsonObject, Message, text_of

__all__ = ["Relation", "Utterance", "relation_of", "turns_of_path", "turns_of_request"]


class Utterance(NamedTuple):
    """A turn. `at` is the index of the turn's first message on the path, or in the history."""

    role: str
    text: str
    at: int


Relation: TypeAlias = Literal["same", "earlier", "other"]


def turns_of_path(path: Sequence[Message]) -> list[Utterance]:
    """Return the turns of a chat's active path."""
    return _merged(
        (message.role, text_of(message.content), index) for index, message in enumerate(path) if not message.hidden
    )


def turns_of_request(history: Sequence[JsonObject]) -> list[Utterance]:
    """Return the turns of a request without its last message."""
    return _merged((str(each["role"]), _text(each["content"]), index) for index, each in enumerate(history))


def relation_of(given: Sequence[Utterance], path: Sequence[Utterance], asked: object = None) -> Relation:
    """Return how a request's history relates to a chat: "same" if the turns are equal; "earlier" if the history equals
    the chat's earlier turns, so that the request replaces the following turn; "other" for another conversation. Without
    a history, only the request's message `asked` is compared: if it equals the chat's first question, the result is
    "earlier"."""
    if len(given) > len(path) or not all(map(_is_same, given, path)):
        return "other"
    if len(given) == len(path):
        return "same"
    after = path[len(given)]
    is_known = bool(given) or after.text.strip() == _text(asked).strip()
    return "earlier" if is_known and after.role == "user" else "other"


def _is_same(given: Utterance, held: Utterance) -> bool:
    if given.role != held.role:
        return False
    before, mark, _ = given.text.rpartition(PAUSE_MARK)
    if mark and given.role == "assistant":  # the answer continued after the caller had received the notice
        return held.text.strip().startswith(before.strip())
    return given.text.strip() == held.text.strip()  # some front ends trim the text that they show


def _merged(messages: Iterable[tuple[str, str, int]]) -> list[Utterance]:
    turns: list[Utterance] = []
    for role, text, index in messages:
        if role not in ("user", "assistant") or not text:
            continue
        if role == "assistant" and turns and turns[-1].role == role:
            turns[-1] = turns[-1]._replace(text=turns[-1].text + ROUND_SEPARATOR + text)
        else:
            turns.append(Utterance(role, text, index))
    return turns


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))
