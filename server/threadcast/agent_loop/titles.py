"""Lets a model write the title of a chat after its first answer (TREE-5).

The first line of a chat becomes its title at once (`chat/starts.py`). If the operator names a model for titles, a title
written by this model replaces the first line. A title that a person has set is never changed. After a failure the title
stays the first line, and the next attempt follows the next message.
"""

import anyio

from threadcast.agent_loop.ports import ModelTable
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.starts import TITLE_MAX_CHARACTERS, first_line, first_question
from threadcast.providers.base import ModelParams, Request
from threadcast.providers.complete import complete
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import Message, text_of
from threadcast_protocol.wire.thread import Thread

__all__ = ["INSTRUCTION", "make_title", "wants_title"]

TITLE_SECONDS = 20.0
"""The maximum seconds that writing a title may take. The worker keeps the chat during this time."""

EXCERPT_MAX_CHARACTERS = 2_000
"""The maximum characters of the question, and of the answer, that the model reads. This is enough to recognize the
subject."""

MAX_TOKENS = 40

INSTRUCTION = (
    "Write a title of at most six words for this conversation, in its language. "
    "Answer with the title alone: no quotes, no full stop."
)


def wants_title(state: OwnerState) -> bool:
    """Return whether the chat has a first answer and no title chosen by a user or a model, and no attempt has failed
    since its newest message. A temporary chat needs no title, because no list of chats shows it."""
    thread, first = state.thread, first_question(state)
    if thread.is_title_generated or thread.temporary or first is None or state.path[-1] == state.private.untitled_at:
        return False
    automatic = (Thread(id=thread.id).title, first_line(first))
    answered = any(state.nodes[key].role == "assistant" and state.nodes[key].content for key in state.path)
    return thread.title in automatic and answered


async def make_title(models: ModelTable, model: str, state: OwnerState) -> str:
    """Return the model's title, at most `TITLE_MAX_CHARACTERS` characters.

    Raises:
        ModelFailed: the model is unknown, failed, wrote no title, or needed more than `TITLE_SECONDS`.
    """
    excerpt = "\n\n".join(f"{m.role}: {text_of(m.content)[:EXCERPT_MAX_CHARACTERS]}" for m in _first_exchange(state))
    provider, name = models.resolve(model)
    request = Request(
        model=name,
        messages=[Message(role="user", content=excerpt, message_id="title")],
        system=INSTRUCTION,
        params=ModelParams(max_tokens=MAX_TOKENS),
    )
    try:
        with anyio.fail_after(TITLE_SECONDS):
            done = await complete(provider, request)
    except TimeoutError:
        raise ModelFailed("timeout", "No title in time.", detail=f"no title in {TITLE_SECONDS:g} s") from None
    lines = done.text.strip().splitlines()
    if title := lines[0].strip(" \"'*#.").strip()[:TITLE_MAX_CHARACTERS] if lines else "":
        return title
    raise ModelFailed("empty_answer", "The model wrote no title.", detail=f"wrote {done.text[:40]!r}")


def _first_exchange(state: OwnerState) -> list[Message]:
    """Return the first question and its answer. A report of a failed command before the question is left out."""
    said = [state.nodes[key] for key in state.path if state.nodes[key].role in ("user", "assistant")]
    return said[:2]
