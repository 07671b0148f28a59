"""Asks the model once more after an empty answer: one with no text and no call, or with a call without a name. Pure.

What the model is told stands in the log as an aside, with the run that it belongs to; so whether a run has asked once
more is read from the log, by a successor as well. Reasoning alone is no answer, but people have seen it, so it stays.
"""

from protocol.ids import NewId
from protocol.messages import Message
from protocol.state import Aside, ChatState, Draft, Run

__all__ = ["KIND", "NAMELESS", "NOTHING", "aside_of", "has_asked", "is_asked_after", "objection_to"]

KIND = "empty"
"""The `kind` of the message that only the model sees."""

NOTHING = "Your last answer was empty. Answer the user now, in words or by calling a tool."
NAMELESS = "Your last answer called a tool without naming it. Call it again by its name, or answer in words."


def objection_to(draft: Draft, *, has_calls: bool, has_nameless_calls: bool) -> str:
    """Return what is wrong with a complete answer, '' when it says something."""
    if has_calls:
        return ""
    if has_nameless_calls:
        return NAMELESS
    return "" if says_something(draft) else NOTHING


def says_something(draft: Draft) -> bool:
    """Return whether the message has more than white space and reasoning. Output of the provider's own tools counts."""
    return bool(str(draft.content).strip() or draft.message.server_content_blocks)


def has_asked(state: ChatState, run: Run) -> bool:
    """Return whether this run has asked its model once more already."""
    return any(_is_of(aside, run) for aside in state.private.asides)


def is_asked_after(state: ChatState, run: Run, message: Message) -> bool:
    """Return whether an aside of this run, behind `message`, asks the model once more: then another round must
    follow."""
    return any(_is_of(aside, run) and aside.after == message.message_id for aside in state.private.asides)


def aside_of(objection: str, run: Run, after: str | None, new_id: NewId, now_ms: int) -> Aside:
    """Return the aside that tells the model about its empty answer, placed behind the message `after`."""
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
