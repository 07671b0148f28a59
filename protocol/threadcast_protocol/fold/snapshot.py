"""Converts the state of a chat into a snapshot for clients, and a snapshot into a client's state.

Two states are equal under the law of `reducer.py` if their snapshots are equal. A snapshot contains the active path
including the unfinished answer, even while the answer is empty, so that no delta refers to an unknown message (PROTOCOL
§4).
"""

from msgspec.structs import replace

from threadcast_protocol.fold.growing_text import GrowingText
from threadcast_protocol.fold.reducer import drafted_message
from threadcast_protocol.fold.state import ChatState, Draft, empty_state
from threadcast_protocol.wire.events import Snapshot
from threadcast_protocol.wire.messages import Message

__all__ = ["active_path", "snapshot_of", "state_from_snapshot"]


def active_path(state: ChatState) -> list[Message]:
    """Return the messages from the root to the leaf, with the text of the draft so far."""
    draft = state.draft
    if draft is None:
        return [state.nodes[key] for key in state.path]
    drafted = draft.message.message_id
    return [drafted_message(draft) if key == drafted else state.nodes[key] for key in state.path]


def snapshot_of(state: ChatState) -> Snapshot:
    """Return the snapshot from which a client can start at `state.position`."""
    return Snapshot(
        thread=replace(state.thread, leaf_id=state.path[-1] if state.path else None),
        runtime=state.runtime,
        messages=active_path(state),
        background_agents=list(state.background_agents),
        payloads=list(state.payloads),
        recent_acks=list(state.recent_acks),
    )


def state_from_snapshot(chat_id: str, snapshot: Snapshot, position: int) -> ChatState:
    """Return the state of a client that has received `snapshot`: the nodes of the active path, ready for the next
    event.

    While a run is open, the last message is the unfinished answer if its role is assistant and it has no finish reason.
    """
    state = replace(
        empty_state(chat_id),
        thread=snapshot.thread,
        runtime=snapshot.runtime,
        position=position,
        nodes={message.message_id: message for message in snapshot.messages},
        path=tuple(message.message_id for message in snapshot.messages),
        background_agents=tuple(snapshot.background_agents),
        payloads=tuple(snapshot.payloads),
        recent_acks=tuple(snapshot.recent_acks),
    )
    leaf = state.leaf
    is_open = leaf is not None and leaf.role == "assistant" and leaf.finish_reason is None
    if leaf is None or not is_open or state.is_at_rest or not isinstance(leaf.content, str):
        return state
    draft = Draft(leaf, GrowingText(leaf.content), GrowingText(leaf.reasoning_content or ""))
    return replace(state, draft=draft)
