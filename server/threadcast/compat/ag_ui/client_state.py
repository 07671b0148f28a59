"""The state that AG-UI clients share with an agent. Pure.

A client's state comes with a message and is kept in that message's context, as `ag_ui_state`, apart from everything
that the server trusts. A tool changes the state by a payload of the type `ag_ui_state`, whose data is the new state; a
remote agent behind AG-UI changes the state by its own state events.
"""

from typing import Any

from msgspec import UNSET

from threadcast.compat.ag_ui.open_answer import event
from threadcast.compat.base import OutFrame
from threadcast_protocol.fold.state import ChatState

__all__ = ["STATE_TYPE", "ClientState", "changes", "newest_state"]

STATE_TYPE = "ag_ui_state"
"""The type of payloads and of agents' data that hold the state, and the key of a client's state in the context."""


class ClientState:
    """Keeps the state that was last sent to the client of one stream."""

    def __init__(self) -> None:
        self._shown: Any = UNSET  # Any: JSON, or UNSET before the first snapshot

    def show(self, state: Any) -> list[OutFrame]:  # Any: JSON
        """Return the event that sends this state to the client: a snapshot the first time, later a JSON Patch. Returns
        [] if the client already has the state."""
        before, self._shown = self._shown, state
        if before is UNSET or not isinstance(before, dict) or not isinstance(state, dict):
            return [] if before is not UNSET and before == state else [event("STATE_SNAPSHOT", snapshot=state)]
        patch = changes(before, state)
        return [event("STATE_DELTA", delta=patch)] if patch else []


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:  # Any: JSON
    """Return the JSON Patch (RFC 6902) that turns one object into the other. A changed key's value is replaced as a
    whole."""
    patch: list[dict[str, Any]] = [{"op": "remove", "path": _pointer(key)} for key in before if key not in after]
    for key, value in after.items():
        if key not in before:
            patch.append({"op": "add", "path": _pointer(key), "value": value})
        elif before[key] != value or type(before[key]) is not type(value):
            patch.append({"op": "replace", "path": _pointer(key), "value": value})
    return patch


def _pointer(key: str) -> str:
    """Return the JSON Pointer (RFC 6901) of a key."""
    return "/" + key.replace("~", "~0").replace("/", "~1")


def newest_state(state: ChatState) -> Any:  # Any: JSON, or UNSET
    """Return the newest state in a chat: from a tool's payload, or from a message of the user. Returns UNSET if the
    chat has no state."""
    indexes = {key: index for index, key in enumerate(state.path)}
    found: Any = UNSET  # Any: JSON
    found_at = -1
    for index, key in enumerate(state.path):
        context = state.nodes[key].context
        if state.nodes[key].role == "user" and STATE_TYPE in context:
            found, found_at = context[STATE_TYPE], index
    for payload in state.payloads:
        if payload.payload_type == STATE_TYPE and payload.source != "preview":
            at = indexes.get(payload.message_id, -1)
            if at >= found_at and at >= 0:
                found, found_at = payload.data, at
    return found
