"""A state as a client sees it, and a client's state from what it was given.

`snapshot_of` is what the law compares: two states are the same when their snapshots are. A snapshot holds the active
path with the unfinished answer included, even while it is empty, so that no delta ever refers to an unknown message
(PROTOCOL §4).
"""

from msgspec.structs import replace

from protocol.events import Snapshot
from protocol.messages import Message
from protocol.reducer import drafted_message
from protocol.state import ChatState, Draft, empty_state
from protocol.text import GrowingText

__all__ = ["active_path", "resume_is_possible", "snapshot_of", "state_from_snapshot"]


def active_path(state: ChatState) -> list[Message]:
    """The messages from the root to the leaf, the draft as it stands."""
    draft = state.draft
    if draft is None:
        return [state.nodes[key] for key in state.path]
    drafted = draft.message.message_id
    return [drafted_message(draft) if key == drafted else state.nodes[key] for key in state.path]


def snapshot_of(state: ChatState) -> Snapshot:
    """All that a client needs to start at `state.position`."""
    return Snapshot(
        thread=replace(state.thread, leaf_id=state.path[-1] if state.path else None),
        runtime=state.runtime,
        messages=active_path(state),
        background_agents=list(state.background_agents),
        payloads=list(state.payloads),
        recent_acks=list(state.recent_acks),
    )


def state_from_snapshot(chat_id: str, snapshot: Snapshot, position: int) -> ChatState:
    """What a client holds after `snapshot`: the nodes of the active path, ready for the next event.

    A last message of the assistant without a finish reason, while a run is open, is the unfinished answer.
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


def resume_is_possible(state: ChatState, epoch: int, position: int) -> bool:
    """Does (epoch, position) belong to this history (DESIGN §2)? Whether the events after it are still held is the
    log's business. A chat that is not there has no life to go on with.

    A life reaches from the position before its first event to the position before the next life's first.
    """
    if position > state.position or not state.lives:
        return False
    for (life, first), following in zip(state.lives, [*state.lives[1:], (0, state.position + 1)], strict=True):
        if life == epoch and first - 1 <= position < following[1]:
            return True
    return False
