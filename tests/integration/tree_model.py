"""The tree of messages in the model of a chat, and the demo models' answers to a path of the tree.

The tree is a dict of nodes in the order of their creation, and the numbers of the nodes on the active path. See
`chat_model.py`.
"""

import itertools
import json
from dataclasses import dataclass, field

from threadcast.providers.demo.text import essay, words_of

__all__ = ["ECHO", "HANG", "HANG_AT_ONCE", "TOOLS", "Call", "Node", "TreeModel"]

ECHO, TOOLS = "demo/echo?rate=0", "demo/tools?rate=0"
HANG, HANG_AT_ONCE = "demo/hang?after=3&rate=0", "demo/hang?rate=0"


@dataclass(eq=False)
class Call:
    """A call of a tool; two calls are different even if their arguments are equal."""

    name: str
    arguments: dict[str, str]


@dataclass
class Node:
    role: str
    text: str
    parent: int | None
    calls: list[Call] = field(default_factory=list)
    answers: Call | None = None
    failed: bool = False


class TreeModel:
    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.path: list[int] = []
        self._numbers = itertools.count(1)

    def children(self, parent: int | None) -> list[int]:
        return [key for key, node in self.nodes.items() if node.parent == parent]

    @property
    def _leaf(self) -> int | None:
        return self.path[-1] if self.path else None

    def _append(self, node: Node) -> None:
        key = next(self._numbers)
        self.nodes[key] = node
        self.path.append(key)

    def _drop(self, key: int) -> None:
        """Remove the message and everything below it."""
        for child in self.children(key):
            self._drop(child)
        del self.nodes[key]
        self.path = [other for other in self.path if other != key]

    def _way_to(self, key: int) -> list[int]:
        parent = self.nodes[key].parent
        return [*([] if parent is None else self._way_to(parent)), key]

    def _down_from(self, key: int) -> list[int]:
        """Return the path through the message, which continues with the newest child at each level."""
        below = self.children(key)
        return self._down_from(below[-1]) if below else self._way_to(key)

    def _end_of_exchange(self, at: int) -> int:
        """Return the index after the message and the results of its calls."""
        calls = self.nodes[self.path[at]].calls
        end = at + 1
        while end < len(self.path) and self.nodes[self.path[end]].answers in calls:
            end += 1
        return end

    def words_of_model(self, model: str, path: list[int]) -> tuple[str, list[Call]]:
        """Return the demo model's answer to this path."""
        seen = [self.nodes[key] for key in path]
        at = max((i for i, node in enumerate(seen) if node.role == "user"), default=-1)
        asked = seen[at].text if at >= 0 else ""
        since = seen[at + 1 :]
        if model == HANG_AT_ONCE:
            return "", []
        if model == HANG:
            return "".join(itertools.islice(words_of(essay(4, seed=asked)), 3)), []
        if model == ECHO:
            return f"You said: {asked}", []
        answered = [node.answers for node in seen]
        was_called = any(call in answered for node in since for call in node.calls)
        wanted = [line.split(" ", 2) for line in asked.splitlines() if line.startswith("call ")]
        if wanted and not was_called:
            calls = [Call(name, json.loads(arguments)) for _, name, arguments in wanted]
            return f"I will use {', '.join(call.name for call in calls)}.", calls
        return self._summary(seen, since), []

    def _summary(self, seen: list[Node], since: list[Node]) -> str:
        called = [call for node in seen for call in node.calls]
        lines = [
            f"- {node.answers.name if node.answers in [c for n in since for c in n.calls] else 'a tool'}"
            f"{' failed' if node.failed else ''}: {node.text}"
            for node in since
            if node.role == "tool" and node.answers in called and node.answers is not None
        ]
        if lines:
            return "\n".join(["The tools have answered.", "", *lines])
        return (
            "I call tools. Ask me for the time, give me a sum such as 6 * 7, let me write a note, "
            'or say it exactly in a line of its own: call calculator {"expression": "6 * 7"}'
        )
