"""Edits the tree of messages: cuts, replaces, branches, removes and selects messages (PROTOCOL §2, CMD-5..11).

Each function only adds events to an `EntryBuilder`; `starts.py` and `decider.py` handle the queue, runs and acks. The
tree keeps old branches until a command removes them. Clients that show only a flat list of messages update this list
with the events `messages_truncated`, `message_added` and `message_removed`.
"""

from msgspec.structs import replace

from threadcast.chat.entry_builder import EntryBuilder
from threadcast.chat.owner_state import OwnerState
from threadcast_protocol.fold.tree import children_of, deepest_leaf, subtree_of, way_to, with_siblings
from threadcast_protocol.wire.blobs import attachments_of
from threadcast_protocol.wire.errors import BadRequest, NotFound
from threadcast_protocol.wire.events import (
    BranchSelected,
    MessageAdded,
    MessageRemoved,
    MessagesTruncated,
    MessageUpdated,
)
from threadcast_protocol.wire.messages import Message, Part

__all__ = [
    "cut",
    "end_of_exchange",
    "index_of",
    "path_without",
    "regenerate_from",
    "remove",
    "rewrite",
    "select_branch",
]


def index_of(state: OwnerState, message_id: str) -> int:
    """Return the index of the message on the active path. Raises NotFound."""
    if message_id not in state.path:
        known = (
            "the message is on another branch; select that first"
            if message_id in state.nodes
            else "there is no such message"
        )
        raise NotFound(f"message_id is not on the active path: {known}", path="/message_id")
    return state.path.index(message_id)


def cut(builder: EntryBuilder, index: int, *, prune: bool = False) -> None:
    """End the active path before `index`. With `prune`, the cut messages are also removed from the tree (CMD-10)."""
    if index >= len(builder.state.path):
        return
    if not prune:
        builder.say(MessagesTruncated(index))
        return
    for key in reversed(builder.state.path[index:]):
        builder.say(MessageRemoved(key))


def regenerate_from(state: OwnerState, message_id: str | None) -> int:
    """Return how many messages of the path are kept when an answer is generated again (CMD-5).

    Raises:
        NotFound: the message is not on the active path, or the path is empty.
        BadRequest: there is no user message before the answer.
    """
    roles = [state.nodes[key].role for key in state.path]
    if not roles:
        raise NotFound("there is nothing to regenerate: the chat has no messages")
    if message_id is not None:
        at = index_of(state, message_id)
        stays = at if roles[at] == "assistant" else at + 1
    elif roles[-1] in ("user", "tool"):
        stays = len(roles)
    else:
        last_user = max((i for i, role in enumerate(roles) if role == "user"), default=-1)
        answers = [i for i in range(last_user + 1, len(roles)) if roles[i] == "assistant"]
        stays = answers[0] if answers else len(roles)
    if "user" not in roles[:stays]:
        raise BadRequest("there is no user message before this answer")
    return stays


def end_of_exchange(state: OwnerState, index: int) -> int:
    """Return the index that follows the message at `index` and its tool results."""
    calls = {call.id for call in state.nodes[state.path[index]].tool_calls}
    end = index + 1
    while end < len(state.path) and state.nodes[state.path[end]].tool_call_id in calls:
        end += 1
    return end


def rewrite(builder: EntryBuilder, message: Message, content: str | list[Part]) -> None:
    """Replace the content of a message without moving it (CMD-7, CMD-8)."""
    attachments = attachments_of(content, builder.state.chat_id)
    builder.say(MessageUpdated(message.message_id, replace(message, content=content, attachments=attachments)))


def remove(builder: EntryBuilder, message_id: str) -> None:
    """Remove the message and all messages below it from the tree. If the message is on the active path, the path then
    continues with the newest remaining sibling, or ends at the parent (CMD-9).

    Raises:
        NotFound: the tree has no such message.
    """
    nodes = builder.state.nodes
    if message_id not in nodes:
        raise NotFound("there is no such message", path="/message_id")
    parent_id = nodes[message_id].parent_id
    gone = set(subtree_of(nodes, message_id))
    leaves_path = [key for key in builder.state.path if key in gone]
    way = path_without(builder.state, message_id)
    for key in [*reversed(leaves_path)] or [message_id]:
        builder.say(MessageRemoved(key))
    left = children_of(builder.state.nodes, parent_id)
    if leaves_path and left:
        told = with_siblings(builder.state.nodes, way)
        for key in way[len(builder.state.path) :]:
            builder.say(MessageAdded(told[key], len(builder.state.path)))
    else:
        _tell_siblings(builder, left)


def path_without(state: OwnerState, message_id: str) -> tuple[str, ...]:
    """Return the active path as it will be after `remove`. Raises NotFound if the tree has no such message."""
    if message_id not in state.nodes:
        raise NotFound("there is no such message", path="/message_id")
    if message_id not in state.path:
        return state.path
    stays = state.path[: state.path.index(message_id)]
    siblings = children_of(state.nodes, state.nodes[message_id].parent_id)
    left = [key for key in siblings if key != message_id]
    return tuple(way_to(state.nodes, deepest_leaf(state.nodes, left[-1]))) if left else stays


def _tell_siblings(builder: EntryBuilder, siblings: list[str]) -> None:
    """Add an event with the new list of siblings if one of `siblings` is on the active path."""
    for key in siblings:
        if key in builder.state.path:
            told = with_siblings(builder.state.nodes, [key])[key]
            builder.say(MessageUpdated(key, told))


def select_branch(builder: EntryBuilder, message_id: str) -> None:
    """Move the active path to the message. Below the message, the path follows the newest child of each message to a
    leaf (CMD-11). Raises NotFound if the tree has no such message."""
    if message_id not in builder.state.nodes:
        raise NotFound("there is no such message", path="/message_id")
    leaf_id = deepest_leaf(builder.state.nodes, message_id)
    if builder.state.path[-1:] != (leaf_id,):
        builder.say(BranchSelected(leaf_id))
