"""Expands the shorthand for edges, in which each action names its predecessor: `after: "Name"` or `after: "Name:port"`
(TOOL-10).

Models write trees of actions well and lists of edges badly; this module converts trees into lists of edges. An
operator's own tools can use these pure functions too. An inconsistency raises `ToolFailed` with a sentence that tells
the model the valid choices.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["Action", "ActionKind", "Edge", "expand_edges", "kinds_by_type"]

SEPARATOR = ":"
DEFAULT_PORT = "out"


class ActionKind(msgspec.Struct, frozen=True):
    """A type of action. `ports` are the action's outputs; the first port is the default."""

    type: str
    ports: tuple[str, ...] = (DEFAULT_PORT,)
    description: str = ""

    def __post_init__(self) -> None:
        if not self.ports:
            raise ValueError(f"action type {self.type!r} needs at least one port")


class Action(msgspec.Struct, frozen=True):
    """One action. `after`: its predecessor; '' for the first action of the workflow."""

    name: str
    type: str
    after: str = ""
    parameters: JsonObject = {}


class Edge(msgspec.Struct, frozen=True, omit_defaults=True):
    """An edge from the `port` of the action `source` to the action `target`. The start edge has neither source nor
    port."""

    target: str
    source: str | None = None
    port: str | None = None


def kinds_by_type(kinds: Iterable[ActionKind]) -> dict[str, ActionKind]:
    """Return the kinds by type. Raises ValueError when two kinds have the same type."""
    by_type: dict[str, ActionKind] = {}
    for kind in kinds:
        if by_type.setdefault(kind.type, kind) is not kind:
            raise ValueError(f"two kinds of actions have the type {kind.type!r}")
    return by_type


def expand_edges(actions: Sequence[Action], kinds: Mapping[str, ActionKind]) -> list[Edge]:
    """Return one edge for each action, in order. `kinds` is keyed by type.

    Raises:
        ToolFailed: there is not exactly one start, a name is duplicate or has a colon, a predecessor, type or port is
        unknown, or the start does not lead to an action.
    """
    by_name: dict[str, Action] = {}
    for action in actions:
        check_name(action.name)
        if by_name.setdefault(action.name, action) is not action:
            raise ToolFailed(f"There are two actions called {action.name!r}; give one of them another name.")
        if action.type not in kinds:
            raise ToolFailed(f"There is no action type {action.type!r}. Known types: {_listed(kinds)}.")
    edges = [_edge(action, by_name, kinds) for action in actions]
    starts = [edge.target for edge in edges if edge.source is None]
    if not starts:
        raise ToolFailed("No action begins the workflow: exactly one must have no `after`.")
    if len(starts) > 1:
        raise ToolFailed(f"Exactly one action may have no `after`, and {_listed(starts)} have none.")
    _check_reached(starts[0], edges)
    return edges


def check_name(name: str) -> None:
    """Check a name. Raises ToolFailed for a name that `after` could not refer to."""
    if not name.strip() or SEPARATOR in name:
        raise ToolFailed(f"{name!r} cannot be an action's name; it must not be empty or contain a colon.")


def _edge(action: Action, by_name: Mapping[str, Action], kinds: Mapping[str, ActionKind]) -> Edge:
    if not action.after:
        return Edge(action.name)
    source, separator, port = action.after.partition(SEPARATOR)
    before = by_name.get(source)
    if before is None:
        others = _listed(name for name in by_name if name != action.name)
        raise ToolFailed(f"{action.name!r} comes after {source!r}, which is not an action. Known actions: {others}.")
    kind = kinds[before.type]
    if not separator:
        return Edge(action.name, source, kind.ports[0])
    if port not in kind.ports:
        raise ToolFailed(f"{source!r} has no port {port!r}. Ports of a {before.type}: {_listed(kind.ports)}.")
    return Edge(action.name, source, port)


def _check_reached(start: str, edges: Sequence[Edge]) -> None:
    """Check that the start leads to all actions. Since every action has one predecessor, the actions that the start
    does not lead to form a circle."""
    following: dict[str | None, list[str]] = {}
    for edge in edges:
        following.setdefault(edge.source, []).append(edge.target)
    reached, waiting = {start}, [start]
    while waiting:
        targets = following.get(waiting.pop(), [])
        reached.update(targets)
        waiting += targets
    circling = [edge.target for edge in edges if edge.target not in reached]
    if circling:
        raise ToolFailed(f"The start does not lead to {_listed(circling)}: they come after each other in a circle.")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
