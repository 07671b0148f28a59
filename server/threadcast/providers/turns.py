"""Builds turns, which the APIs of Anthropic and Google use in place of messages. Pure.

A turn contains all adjacent messages of one role as a list of blocks (`content` at Anthropic, `parts` at Google). The
module also has two conversions that both APIs need: arguments as an object, and images split into type and data.
`anthropic/request.py` and `google/request.py` make the blocks.
"""

from collections.abc import Callable

from threadcast_protocol.wire.bodies import read_object
from threadcast_protocol.wire.messages import JsonObject, Message, ToolCall, text_of

__all__ = ["Turns", "answer_blocks", "arguments_object", "split_data_url"]


class Turns:
    """Collects turns. `answers` is the name of the model's role, `key` the field of a turn's blocks."""

    def __init__(self, answers: str, key: str) -> None:
        self._answers = answers
        self._key = key
        self.turns: list[JsonObject] = []

    def ask(self, blocks: list[JsonObject]) -> None:
        self._add("user", blocks)

    def answer(self, blocks: list[JsonObject]) -> None:
        self._add(self._answers, blocks)

    def _add(self, role: str, blocks: list[JsonObject]) -> None:
        if not blocks:
            return
        if self.turns and self.turns[-1]["role"] == role:
            self.turns[-1][self._key] += blocks
        else:
            self.turns.append({"role": role, self._key: [*blocks]})

    @property
    def last(self) -> list[JsonObject]:
        """Return the blocks of the last turn."""
        blocks: list[JsonObject] = self.turns[-1][self._key] if self.turns else []
        return blocks

    def begin_and_end_with_the_user(self, left_out: JsonObject, go_on: JsonObject) -> None:
        """Add a user's turn before a history that begins with an answer, and after a history that ends with an answer,
        which the API would otherwise continue."""
        if self.turns and self.turns[0]["role"] != "user":
            self.turns.insert(0, {"role": "user", self._key: [left_out]})
        if self.turns and self.turns[-1]["role"] != "user":
            self.ask([go_on])


def answer_blocks(
    message: Message,
    kept: list[JsonObject],
    *,
    call: Callable[[ToolCall], JsonObject],
    text: Callable[[str], JsonObject],
    text_in: Callable[[JsonObject], str],
) -> list[JsonObject]:
    """Return the blocks of an earlier answer: its kept blocks with the message's calls in their places, then the text
    and calls that the kept blocks lack because the stream broke.

    `call` and `text` make a block of a call and of a text. `text_in` returns the answer's text in a kept block. Of a
    kept call only the place is used: the id and the arguments come from the message, where they may have been replaced
    or edited.
    """
    calls = {each.index: each for each in message.tool_calls}
    blocks: list[JsonObject] = []
    said = ""
    for block in kept:
        if "call" not in block:
            said += text_in(block)
            blocks.append(block)
        elif (made := calls.pop(block["call"], None)) is not None:
            blocks.append({**{key: value for key, value in block.items() if key != "call"}, **call(made)})
    whole = text_of(message.content)
    if whole.startswith(said) and (rest := whole[len(said) :]):
        blocks.append(text(rest))
    return blocks + [call(each) for each in calls.values()]


def arguments_object(arguments: str) -> JsonObject:
    """Return the arguments of a call as an object, which both APIs require; a malformed call must not block all later
    requests of the chat."""
    read = read_object(arguments)
    return {"invalid_json": arguments} if read is None else read


def split_data_url(url: str) -> tuple[str, str]:
    """Return MIME type and base64 of `data:MIME;base64,DATA`; the edge accepts no other images (PROTOCOL §10)."""
    head, _, data = url.partition(",")
    mime = head.removeprefix("data:").partition(";")[0]
    return ("image/jpeg" if mime == "image/jpg" else mime), data
