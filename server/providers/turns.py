"""What the wires of Anthropic and Google have in common: a conversation of turns, where we have messages. Pure.

In a turn stands all that one side says before the other does, as a list of blocks (`content` there, `parts` here), so
neighbours of one role become one turn. Also the two conversions that both need: arguments as an object and images in
pieces. Who writes the blocks is `anthropic/request.py` and `google/request.py`.
"""

from protocol.bodies import read_object
from protocol.messages import JsonObject

__all__ = ["Turns", "arguments_object", "split_data_url"]


class Turns:
    """The turns so far. `answers` is the model's role, `key` the place of the blocks in a turn."""

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
        """The blocks of the last turn."""
        blocks: list[JsonObject] = self.turns[-1][self._key] if self.turns else []
        return blocks

    def begin_and_end_with_the_user(self, left_out: JsonObject, go_on: JsonObject) -> None:
        """A shortened history may begin with an answer, and one that ends with an answer would be taken for the
        beginning of the next: the blocks given here are put before and after such."""
        if self.turns and self.turns[0]["role"] != "user":
            self.turns.insert(0, {"role": "user", self._key: [left_out]})
        if self.turns and self.turns[-1]["role"] != "user":
            self.ask([go_on])


def arguments_object(arguments: str) -> JsonObject:
    """The arguments of a call as both wires take them, an object; what the model once misspelt must not block the chat
    for good."""
    read = read_object(arguments)
    return {"invalid_json": arguments} if read is None else read


def split_data_url(url: str) -> tuple[str, str]:
    """Mime type and base64 of `data:MIME;base64,DATA`; the edge lets no other image through (PROTOCOL §10)."""
    head, _, data = url.partition(",")
    mime = head.removeprefix("data:").partition(";")[0]
    return ("image/jpeg" if mime == "image/jpg" else mime), data
