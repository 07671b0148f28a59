"""What the scripted models must say: the exact text of an answer, from the messages before it.

The texts are the demo provider's own pure functions; which of them is played, and in answer to what, is said here a
second time, so that an answer to the wrong question is noticed. It knows no log and no faults.
"""

from collections.abc import Sequence

from protocol.messages import Message, text_of
from server.providers.demo.calls import summary, wanted_calls
from server.providers.demo.text import essay

__all__ = ["ECHO", "ESSAY", "ESSAY_WORDS", "TOOLS", "expected_text"]

ESSAY_WORDS = 60

ECHO = "demo/echo?rate=0"
ESSAY = f"demo/essay?words={ESSAY_WORDS}&rate=60"
"""A second of writing: long enough to be struck in the middle."""

TOOLS = "demo/tools?rate=0"
OFFERED = ("count_once", "count_safe", "count_asked")


def expected_text(model: str, path: Sequence[Message]) -> str | None:
    """The whole answer of `model` to this path; None for a model that is none of ours."""
    asked_at = max((at for at, message in enumerate(path) if message.role == "user"), default=-1)
    asked = text_of(path[asked_at].content) if asked_at >= 0 else ""
    since = list(path[asked_at + 1 :])
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
