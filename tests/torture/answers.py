"""Computes the exact answer that a scripted model must give to the messages before it.

The texts come from the demo provider's own pure functions. This module repeats the choice of the function for each
message, so that an answer to the wrong question is noticed.
"""

from collections.abc import Sequence

from threadcast.providers.demo.calls import summary, wanted_calls
from threadcast.providers.demo.text import essay
from threadcast_protocol.wire.messages import Message, text_of

__all__ = ["ECHO", "ESSAY", "ESSAY_WORDS", "FILE_NAME", "TOOLS", "expected_text"]

ESSAY_WORDS = 60

ECHO = "demo/echo?rate=0"
ESSAY = f"demo/essay?words={ESSAY_WORDS}&rate=60"
"""A second of writing: long enough for a fault in its middle."""

TOOLS = "demo/tools?rate=0"
FILE_NAME = "noise.bin"
"""The demo models receive a note in place of the file, and answer the text beside it."""

OFFERED = ("count_once", "count_safe", "count_asked")


def expected_text(model: str, path: Sequence[Message]) -> str | None:
    """Return the whole answer of `model` to this path, or None for a model that is not scripted."""
    asked_at = max((at for at, message in enumerate(path) if message.role == "user"), default=-1)
    asked = text_of(path[asked_at].content) if asked_at >= 0 else ""
    since = _as_called(path[asked_at + 1 :])
    match model.partition("?")[0]:
        case "demo/echo":
            return f"You said: {asked}"
        case "demo/essay":
            return essay(ESSAY_WORDS, seed=f"0 {asked}")
        case "demo/tools":
            calls = wanted_calls(asked, OFFERED)
            if calls and not any(message.tool_calls for message in since):
                return f"I will use {', '.join(call.name for call in calls)}."
            return summary(since)
        case _:
            return None


def _as_called(since: Sequence[Message]) -> list[Message]:
    """Return the messages with the results of each round in the order of its calls, as a model reads them."""
    order = {call.id: at for at, call in enumerate(call for message in since for call in message.tool_calls)}
    results = iter(sorted((m for m in since if m.role == "tool"), key=lambda m: order.get(m.tool_call_id or "", -1)))
    return [next(results) if message.role == "tool" else message for message in since]
