"""Functions on the tree of a chat's messages: children, siblings, subtrees and paths (TREE-1).

The tree is a dict of nodes linked by `parent_id`, in the order of their creation, so a node comes after its parent. A
client that started from a snapshot has only the nodes of the active path; for these nodes the results are correct too.
All functions are pure.
"""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import replace

from threadcast_protocol.wire.messages import Message

__all__ = ["children_of", "deepest_leaf", "placed", "subtree_of", "way_to", "with_siblings"]

Nodes: TypeAlias = dict[str, Message]


def children_of(nodes: Nodes, parent_id: str | None) -> list[str]:
    """Return the ids of the children in the order of their creation. If `parent_id` is None, these are the roots. Only
    the nodes that were added after the parent are searched; the newest message has no such nodes."""
    found: list[str] = []
    for key in reversed(nodes):
        if key == parent_id:
            break
        if nodes[key].parent_id == parent_id:
            found.append(key)
    return found[::-1]


def placed(nodes: Nodes, message: Message, parent_id: str | None) -> Message:
    """Return `message` as a child of `parent_id`, with the ids of its new siblings (TREE-2)."""
    siblings = children_of(nodes, parent_id)
    if message.message_id not in siblings:
        siblings = [*siblings, message.message_id]
    return replace(message, parent_id=parent_id, sibling_ids=siblings, sibling_index=siblings.index(message.message_id))


def with_siblings(nodes: Nodes, path: Sequence[str]) -> dict[str, Message]:
    """Return all nodes; the nodes of `path` get their present sibling ids."""
    below = _children(nodes)
    told = dict(nodes)
    for key in path:
        siblings = below[nodes[key].parent_id]
        told[key] = replace(nodes[key], sibling_ids=siblings, sibling_index=siblings.index(key))
    return told


def way_to(nodes: Nodes, message_id: str) -> tuple[str, ...]:
    """Return the path from the root to the message, or an empty tuple if there is no such message."""
    way: list[str] = []
    node_id: str | None = message_id
    while node_id is not None and node_id in nodes and len(way) <= len(nodes):
        way.append(node_id)
        node_id = nodes[node_id].parent_id
    return tuple(reversed(way))


def deepest_leaf(nodes: Nodes, message_id: str) -> str:
    """Return the leaf that is reached from the message by following the newest child (CMD-11)."""
    newest = {node.parent_id: key for key, node in nodes.items()}
    node_id = message_id
    while node_id in newest:
        node_id = newest[node_id]
    return node_id


def subtree_of(nodes: Nodes, message_id: str) -> Sequence[str]:
    """Return the message and all messages below it, parents before children."""
    below = _children(nodes)
    found = [message_id]
    for key in found:  # the list grows during the loop
        found.extend(below.get(key, []))
    return found


def _children(nodes: Nodes) -> dict[str | None, list[str]]:
    below: dict[str | None, list[str]] = {}
    for key, node in nodes.items():
        below.setdefault(node.parent_id, []).append(key)
    return below
