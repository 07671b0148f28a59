"""Reads the inputs of a run from a chat's state: the request context, the wanted scope, and the visible payloads. Pure.

All functions read only the state, so a run that continues after a crash finds the same values. Values of the run's
command and question take precedence over values of the thread (CTX-1).
"""

from threadcast.chat.owner_state import OwnerState
from threadcast.chat.params import effective
from threadcast.chat.scopes import TOP, Scope, read_scope
from threadcast_protocol.wire.commands import DeclaredTool
from threadcast_protocol.wire.events import PayloadAdded
from threadcast_protocol.wire.messages import JsonObject, Message

__all__ = ["context_of", "declared_tools", "interaction_of", "payloads_of", "wanted_scope"]


def context_of(state: OwnerState, defaults: JsonObject) -> JsonObject:
    """Return the request context of the run's command; if that has none, the context of the question that the run
    answers, else of the thread. A regenerated answer therefore has the context of the original question. `defaults` are
    the parameters of the chat's profile."""
    run = state.private.run
    if run is not None and run.context:
        return run.context
    for message in _question(state):
        if message.context:
            return message.context
    thread: JsonObject | None = effective(state, "context", defaults).value
    return thread or {}


def interaction_of(state: OwnerState) -> JsonObject | None:
    """Return the `interaction` of the last user message on the path; None if the user has typed the message
    (CMD-18)."""
    return next((message.interaction for message in _question(state)), None)


def wanted_scope(state: OwnerState, defaults: JsonObject) -> Scope:
    """Return `context.scope` if it is a valid scope, else the thread's parameter `scope`. The profile may lack the
    returned scope."""
    context = context_of(state, defaults)
    if "scope" in context and (scope := read_scope(context["scope"])) is not None:
        return scope
    return read_scope(effective(state, "scope", defaults).value) or TOP


def payloads_of(state: OwnerState) -> dict[str, PayloadAdded]:
    """Return the payloads of the active path by their ids, oldest first (PAY-7)."""
    if not state.payloads:
        return {}
    path = set(state.path)
    return {payload.payload_id: payload for payload in state.payloads if payload.message_id in path}


def declared_tools(state: OwnerState) -> dict[str, DeclaredTool]:
    """Return, by name, the tools that the senders of the run's question carry out. If the question has several
    messages, a later message overrides an earlier message. A regenerated answer has the tools of its question."""
    declared = state.private.declared_tools
    if not declared:
        return {}
    return {tool.name: tool for message in reversed(_question(state)) for tool in declared.get(message.message_id, ())}


def _question(state: OwnerState) -> list[Message]:
    """Return the last user messages of the path, newest first. The run answers these messages together."""
    found: list[Message] = []
    for key in reversed(state.path):
        message = state.nodes[key]
        if message.role == "user":
            found.append(message)
        elif found:
            break
    return found
