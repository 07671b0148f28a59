"""How the tree of messages is edited: cut, replace, branch, remove, go back (PROTOCOL §2, CMD-5..11).

Each function writes its events into a ledger and nothing else; the queue, runs and acks are `starts.py`'s and
`decider.py`'s. Old branches stay in the tree unless somebody removes them, and flat clients, who know one list only,
are told by `messages_truncated`, `message_added` and `message_removed` what became of theirs.
"""

from msgspec.structs import replace

from protocol.blobs import attachments_of
from protocol.errors import BadRequest, NotFound
from protocol.events import BranchSelected, MessageAdded, MessageRemoved, MessagesTruncated, MessageUpdated
from protocol.ledger import Ledger
from protocol.messages import Message, Part
from protocol.state import ChatState
from protocol.tree import children_of, deepest_leaf, subtree_of, way_to, with_siblings

__all__ = ["cut", "end_of_turn", "index_of", "regenerate_from", "remove", "rewrite", "select_branch"]


def index_of(state: ChatState, message_id: str) -> int:
    """Where on the active path the message stands. Raises NotFound."""
    if message_id not in state.path:
        known = (
            "it is on another branch; select that first" if message_id in state.nodes else "there is no such message"
        )
        raise NotFound(f"message_id is not on the active path: {known}", path="/message_id")
    return state.path.index(message_id)


def cut(ledger: Ledger, index: int, *, prune: bool = False) -> None:
    """Let the active path end before `index`. `prune`: what is cut leaves the tree too (CMD-10)."""
    if index >= len(ledger.state.path):
        return
    if not prune:
        ledger.say(MessagesTruncated(index))
        return
    for key in reversed(ledger.state.path[index:]):
        ledger.say(MessageRemoved(key))


def regenerate_from(state: ChatState, message_id: str | None) -> int:
    """How many messages of the path stay when its answer is asked for again (CMD-5).

    Raises:
        NotFound: no such message on the active path, or nothing to answer.
        BadRequest: the path would begin with an answer to nobody.
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


def end_of_turn(state: ChatState, index: int) -> int:
    """The index after the message at `index` and the results of its calls."""
    calls = {call.id for call in state.nodes[state.path[index]].tool_calls}
    end = index + 1
    while end < len(state.path) and state.nodes[state.path[end]].tool_call_id in calls:
        end += 1
    return end


def rewrite(ledger: Ledger, message: Message, content: str | list[Part]) -> None:
    """The message says something else, in its place (CMD-7, CMD-8)."""
    attachments = attachments_of(content, ledger.state.chat_id)
    ledger.say(MessageUpdated(message.message_id, replace(message, content=content, attachments=attachments)))


def remove(ledger: Ledger, message_id: str) -> None:
    """The message and all below it leave the tree. The path goes on along the newest sibling that is left, or ends at
    the parent (CMD-9).

    Raises:
        NotFound: no such message in the tree.
    """
    nodes = ledger.state.nodes
    if message_id not in nodes:
        raise NotFound("there is no such message", path="/message_id")
    parent_id = nodes[message_id].parent_id
    gone = set(subtree_of(nodes, message_id))
    leaves_path = [key for key in ledger.state.path if key in gone]
    for key in [*reversed(leaves_path)] or [message_id]:
        ledger.say(MessageRemoved(key))
    left = children_of(ledger.state.nodes, parent_id)
    if leaves_path and left:
        _go_down(ledger, left[-1])
    else:
        _tell_siblings(ledger, left)


def _go_down(ledger: Ledger, message_id: str) -> None:
    """Lead the path, which ends at its parent, through `message_id` to its deepest leaf."""
    way = way_to(ledger.state.nodes, deepest_leaf(ledger.state.nodes, message_id))
    told = with_siblings(ledger.state.nodes, way)
    for key in way[len(ledger.state.path) :]:
        ledger.say(MessageAdded(told[key], len(ledger.state.path)))


def _tell_siblings(ledger: Ledger, siblings: list[str]) -> None:
    """One of these lost a sibling; the one on the path says so."""
    for key in siblings:
        if key in ledger.state.path:
            told = with_siblings(ledger.state.nodes, [key])[key]
            ledger.say(MessageUpdated(key, told))


def select_branch(ledger: Ledger, message_id: str) -> None:
    """Go to the message and down to the end, by the newest child each time (CMD-11). Raises NotFound."""
    if message_id not in ledger.state.nodes:
        raise NotFound("there is no such message", path="/message_id")
    leaf_id = deepest_leaf(ledger.state.nodes, message_id)
    if ledger.state.path[-1:] != (leaf_id,):
        ledger.say(BranchSelected(leaf_id))
