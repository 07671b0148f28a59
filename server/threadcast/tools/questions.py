"""The interface with which a running tool asks a person (PROTOCOL §11).

`actor/questions.py` implements it. A question disappears when its call ends or the chat's worker ends.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["AskPort", "NotAnswered", "Unanswered", "no_questions"]

Unanswered: TypeAlias = Literal["rejected", "late", "refused"]


class NotAnswered(ToolFailed):
    """A question of a tool has no answer. `reason` is `rejected` if a person rejected the question, `late` if there was
    no answer in time, or `refused` if the question cannot be asked. A tool that does not catch the error fails with the
    error's sentence, which the model reads."""

    def __init__(self, message: str, reason: Unanswered) -> None:
        super().__init__(message)
        self.reason = reason


class AskPort(Protocol):
    async def __call__(
        self, text: str, options: Sequence[str] = (), *, schema: JsonObject | None = None
    ) -> Any:  # Any: JSON that fits the schema, else a text
        """Ask the people who may write to the chat, and wait for the answer: any text, one of `options`, or a JSON
        value that fits `schema` (a JSON Schema). While the question is open, the tool's timeout does not run. Call this
        function in the loop's thread, from an async tool.

        Raises:
            NotAnswered: a person rejected the question, there was no answer within `limits.question_seconds`, or the
                question cannot be asked: it is too long or has an unusable schema, or the call asks more than five at
                once.
        """


async def no_questions(text: str, options: Sequence[str] = (), *, schema: JsonObject | None = None) -> Any:
    """Raise NotAnswered, because this call has no chat and therefore no people to ask."""
    raise NotAnswered("This call cannot ask a person.", "refused")
