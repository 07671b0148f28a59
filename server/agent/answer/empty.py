"""An answer that says nothing: no text and no call, or a call without a name. The model is asked once more. Pure.

What the model is told stands in the log as an aside, with the run that it belongs to; so whether a run has asked once
more is read from the log, by a successor as well. Reasoning alone is no answer, but people have seen it, so it stays.
"""

from protocol.ids import NewId
from protocol.messages import Message
from protocol.state import Aside, ChatState, Draft, Run

__all__ = ["KIND", "NAMELESS", "NOTHING", "aside_of", "has_asked", "is_asked_after", "objection_to"]

KIND = "empty"
"""Of the message that only the model sees."""

NOTHING = "Your last answer was empty. Answer the user now, in words or by calling a tool."
NAMELESS = "Your last answer called a tool without naming it. Call it again by its name, or answer in words."


def objection_to(draft: Draft, *, has_calls: bool, has_nameless_calls: bool) -> str:
    """What is wrong with an answer that came whole; '' when nothing is."""
    if has_calls:
        return ""
    if has_nameless_calls:
        return NAMELESS
    return "" if says_something(draft) else NOTHING


def says_something(draft: Draft) -> bool:
    """Is there more than white space and thoughts? What the provider's own tools made counts."""
    return bool(str(draft.content).strip() or draft.message.server_content_blocks)


def has_asked(state: ChatState, run: Run) -> bool:
    """Was the model of this run asked once more already?"""
    return any(_is_of(aside, run) for aside in state.private.asides)


def is_asked_after(state: ChatState, run: Run, message: Message) -> bool:
    """Is a round owed, since nothing came after this message or it is nothing itself?"""
    return any(_is_of(aside, run) and aside.after == message.message_id for aside in state.private.asides)


def aside_of(objection: str, run: Run, after: str | None, new_id: NewId, now_ms: int) -> Aside:
    """What the model is told, behind the message `after`."""
    told = Message(
        role="user",
        content=objection,
        message_id=new_id("msg"),
        hidden=True,
        kind=KIND,
        extra={"run_id": run.run_id},
        created_at=now_ms,
    )
    return Aside(told, after)


def _is_of(aside: Aside, run: Run) -> bool:
    return aside.message.kind == KIND and aside.message.extra.get("run_id") == run.run_id
