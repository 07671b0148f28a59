"""Asks the model once more after an empty answer. An empty answer has neither text nor a call, or only calls without a
name. Pure.

The message that asks the model again is in the log as an aside of its run. Therefore each owner of the chat can read
from the log whether the run has asked once more. Reasoning alone is not an answer, but the reasoning stays in the chat,
because people have seen it.
"""

from threadcast.chat.owner_state import Aside, OwnerState, Run
from threadcast_protocol.fold.state import Draft
from threadcast_protocol.wire.ids import NewId
from threadcast_protocol.wire.messages import Message

__all__ = ["KIND", "NAMELESS", "NOTHING", "aside_of", "has_asked", "is_asked_after", "objection_to"]

KIND = "empty"
"""The `kind` of the message that only the model sees."""

NOTHING = "Your last answer was empty. Answer the user now, in words or by calling a tool."
NAMELESS = "Your last answer called a tool without naming it. Call it again by its name, or answer in words."


def objection_to(draft: Draft, *, has_calls: bool, has_nameless_calls: bool) -> str:
    """Return the sentence that tells the model what is wrong with its complete answer, or '' if the answer is not
    empty."""
    if has_calls:
        return ""
    if has_nameless_calls:
        return NAMELESS
    return "" if says_something(draft) else NOTHING


def says_something(draft: Draft) -> bool:
    """Return whether the message has more than white space and reasoning. Output of the provider's own tools counts."""
    return bool(str(draft.content).strip() or draft.message.server_content_blocks)


def has_asked(state: OwnerState, run: Run) -> bool:
    """Return whether this run has already asked its model once more."""
    return any(_is_of(aside, run) for aside in state.private.asides)


def is_asked_after(state: OwnerState, run: Run, message: Message) -> bool:
    """Return whether an aside of this run, placed after `message`, asks the model once more. Another round must then
    follow."""
    return any(_is_of(aside, run) and aside.after == message.message_id for aside in state.private.asides)


def aside_of(objection: str, run: Run, after: str | None, new_id: NewId, now_ms: int) -> Aside:
    """Return the aside that tells the model about its empty answer. The aside is placed after the message with the id
    `after`."""
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
