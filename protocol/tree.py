"""The tree of a chat's messages: where a message stands, what hangs below it, which way leads to it (TREE-1).

Pure questions to a dict of nodes, which keeps the order of their creation; `parent_id` is the only link that counts.
A client that started from a snapshot holds the active path alone and gets right answers about it. Nobody here changes
anything: `reducer.py` and `ledger.py` ask, and the events say what became of it.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from protocol.messages import Message

__all__ = ["children_of", "deepest_leaf", "placed", "subtree_of", "way_to", "with_siblings"]

Nodes: TypeAlias = Mapping[str, Message]


def children_of(nodes: Nodes, parent_id: str | None) -> list[str]:
    """In order of creation; of None: the roots."""
    return [key for key, node in nodes.items() if node.parent_id == parent_id]


def placed(nodes: Nodes, message: Message, parent_id: str | None) -> Message:
    """`message` below `parent_id`, with its siblings as they are once it is there (TREE-2)."""
    siblings = children_of(nodes, parent_id)
    if message.message_id not in siblings:
        siblings = [*siblings, message.message_id]
    return replace(message, parent_id=parent_id, sibling_ids=siblings, sibling_index=siblings.index(message.message_id))


def with_siblings(nodes: Nodes, path: Sequence[str]) -> dict[str, Message]:
    """The nodes, those of `path` with their siblings as they are now."""
    below = _children(nodes)
    told = dict(nodes)
    for key in path:
        siblings = below[nodes[key].parent_id]
        told[key] = replace(nodes[key], sibling_ids=siblings, sibling_index=siblings.index(key))
    return told


def way_to(nodes: Nodes, message_id: str) -> tuple[str, ...]:
    """The path from the root to the message; empty when there is no such message."""
    way: list[str] = []
    place: str | None = message_id
    while place is not None and place in nodes and len(way) <= len(nodes):
        way.append(place)
        place = nodes[place].parent_id
    return tuple(reversed(way))


def deepest_leaf(nodes: Nodes, message_id: str) -> str:
    """Down from the message by the newest child, to the end (CMD-11)."""
    newest = {node.parent_id: key for key, node in nodes.items()}
    place = message_id
    while place in newest:
        place = newest[place]
    return place


def subtree_of(nodes: Nodes, message_id: str) -> Sequence[str]:
    """The message and everything below it, parents before children."""
    below = _children(nodes)
    found = [message_id]
    for key in found:  # grows while it is read
        found.extend(below.get(key, []))
    return found


def _children(nodes: Nodes) -> dict[str | None, list[str]]:
    below: dict[str | None, list[str]] = {}
    for key, node in nodes.items():
        below.setdefault(node.parent_id, []).append(key)
    return below
