"""Titles by a model: asked once, when the first answer is there, beside everything else (TREE-5).

A chat is titled by its first line at once (`protocol/starts.py`); where the operator names a model for titles, its
words take that place. A person's own title is never touched. A failure costs nothing but the better title.
"""

import anyio
import structlog

from protocol.errors import ModelFailed
from protocol.messages import Message, text_of
from protocol.starts import TITLE_MAX_CHARACTERS, first_line
from protocol.state import ChatState
from protocol.thread import Thread
from server.agent.ports import ModelTable
from server.providers.base import ModelParams, Request
from server.providers.complete import complete

__all__ = ["make_title", "wants_title"]

_log = structlog.get_logger()

TITLE_SECONDS = 20.0
"""The chat stays with its worker for so long at most."""

EXCERPT_MAX_CHARACTERS = 2_000
"""Of the question and of the answer: enough to know what they are about."""

MAX_TOKENS = 40

INSTRUCTION = (
    "Write a title of at most six words for this conversation, in its language. "
    "Answer with the title alone: no quotes, no full stop."
)


def wants_title(state: ChatState) -> bool:
    """Is there a first answer, and a title that nobody chose?"""
    thread = state.thread
    if thread.is_title_generated or not state.path:
        return False
    first = state.nodes[state.path[0]]
    automatic = (Thread(id=thread.id).title, first_line(first))
    answered = any(state.nodes[key].role == "assistant" and state.nodes[key].content for key in state.path)
    return thread.title in automatic and first.role == "user" and answered


async def make_title(models: ModelTable, model: str, state: ChatState) -> str:
    """The model's title, or '' when it has none to give in time."""
    shown = [state.nodes[key] for key in state.path[:2]]
    excerpt = "\n\n".join(f"{m.role}: {text_of(m.content)[:EXCERPT_MAX_CHARACTERS]}" for m in shown)
    try:
        provider, name = models.resolve(model)
        request = Request(
            model=name,
            messages=[Message(role="user", content=excerpt, message_id="title")],
            system=INSTRUCTION,
            params=ModelParams(max_tokens=MAX_TOKENS),
        )
        with anyio.fail_after(TITLE_SECONDS):
            done = await complete(provider, request)
    except ModelFailed as failure:
        _log.warning("title.failed", model=model, code=failure.code, detail=failure.detail)
        return ""
    except TimeoutError:
        _log.warning("title.failed", model=model, code="timeout", detail=f"no title in {TITLE_SECONDS:g} s")
        return ""
    lines = done.text.strip().splitlines()
    return lines[0].strip(" \"'*#.").strip()[:TITLE_MAX_CHARACTERS] if lines else ""
