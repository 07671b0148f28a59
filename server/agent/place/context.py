"""Where a chat's run is: its request context, the scope it asks for, the payloads it can see. Pure.

Everything is read from the chat's state, so a run that goes on after a crash is in the same place. Called by the
profiles, the prompt and the loop. The one rule: the latest word of the run's own messages holds, and what the thread
says is only the default below it (CTX-1).
"""

from protocol.events import PayloadAdded
from protocol.messages import JsonObject, Message
from protocol.params import effective
from protocol.state import ChatState
from server.agent.place.scopes import TOP, read_scope
from server.tools.traits import Scope

__all__ = ["context_of", "interaction_of", "payloads_of", "wanted_scope"]


def context_of(state: ChatState, defaults: JsonObject) -> JsonObject:
    """The request context: of the run's command, else of the question that it answers (a regenerated answer has that of
    its first one), else of the thread. `defaults` are the parameters of the chat's profile."""
    run = state.private.run
    if run is not None and run.context:
        return run.context
    for message in _question(state):
        if message.context:
            return message.context
    thread: JsonObject | None = effective(state, "context", defaults).value
    return thread or {}


def interaction_of(state: ChatState) -> JsonObject | None:
    """How the user spoke in the last message of the path, when not by typing (CMD-18)."""
    return next((message.interaction for message in _question(state)), None)


def wanted_scope(state: ChatState, defaults: JsonObject) -> Scope:
    """`context.scope` when that is a scope, else the thread's parameter. Whether there is such a place is the profile's
    business."""
    context = context_of(state, defaults)
    if "scope" in context and (scope := read_scope(context["scope"])) is not None:
        return scope
    return read_scope(effective(state, "scope", defaults).value) or TOP


def payloads_of(state: ChatState) -> dict[str, PayloadAdded]:
    """By id, oldest first: those of the active path, and no other branch's (PAY-7)."""
    if not state.payloads:
        return {}
    path = set(state.path)
    return {payload.payload_id: payload for payload in state.payloads if payload.message_id in path}


def _question(state: ChatState) -> list[Message]:
    """The user messages at the end of the path that are answered together, the newest first."""
    found: list[Message] = []
    for key in reversed(state.path):
        message = state.nodes[key]
        if message.role == "user":
            found.append(message)
        elif found:
            break
    return found
