"""The programs of durable agents in a schedule: sequences of operations, drawn from the seed and the command's id
alone.

A `Program` is data; `agents.py` plays it on a real `AgentContext`. Two workers with the same code draw the same
program. Workers with different code draw programs that differ only where the plan changes the code by a deploy.
"""

import random
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["Op", "Program", "program_of"]

_WEIGHTS = {
    "step": 6.0,
    "call": 3.0,
    "ask": 1.5,
    "sleep": 1.5,
    "now": 0.6,
    "random": 0.6,
    "new_id": 0.6,
    "answer": 2.0,
    "steered": 1.6,
    "version": 0.4,
    "gather": 1.4,
    "first": 1.0,
}
_HOW = {
    "step": {"works": 5, "fails": 1, "kills": 2},
    "answer": {"same": 3, "fickle": 3, "continues": 2, "fails": 1, "kills": 2},
}
DEPTH_MAX = 2


@dataclass(frozen=True)
class Op:
    """One operation. `name` is the step, the tool or the version; `how` chooses the error in a step or an answer. With
    `is_strict`, the branch does not catch the operation's error. `changed` is the operation that new code has in this
    place, if a deploy changes it; with `guard`, the new code requests that version first."""

    kind: str
    name: str = ""
    how: str = ""
    retry: str = ""
    seconds: float = 0.0
    branches: tuple[tuple["Op", ...], ...] = ()
    is_strict: bool = False
    changed: "Op | None" = None
    guard: str = ""


@dataclass(frozen=True)
class Program:
    """`restarts` is the number of times that the agent begins again from the top. With `is_stubborn`, the agent catches
    its cancellation and continues. `guard` is the version that new code requests before its changed step, or '' if it
    requests no version."""

    ops: tuple[Op, ...]
    restarts: int = 0
    is_stubborn: bool = False
    guard: str = ""


@lru_cache(1_000)
def program_of(seed: int, request_id: str, changes: bool, frameworks: bool = False) -> Program:
    """Return the program for the run that this command begins. With `changes`, a deploy changes one of the program's
    steps. With `frameworks`, the program begins with operations of a framework."""
    draw = random.Random(f"agent {seed} {request_id}")
    if frameworks:
        return _framework_program(draw)
    ops = [_op(draw, 0) for _ in range(draw.randint(1, 4))]
    guard = draw.choice(("", "v2")) if changes else ""
    if changes:
        old, new = Op("step", "old", "works", "once", 0.2), Op("step", "new", "works", "once")
        at = draw.randrange(len(ops) + 1)
        ops[at:at] = [Op("changed", changed=new, branches=((old,),), guard=guard), Op("sleep", seconds=0.3)]
    ops.append(Op("answer", how="same"))
    return Program(tuple(ops), restarts=int(draw.random() < 0.15), is_stubborn=draw.random() < 0.3, guard=guard)


def _framework_program(draw: random.Random) -> Program:
    """Return one or two rounds of a framework, perhaps in branches of a gather, between operations of the agent
    itself."""
    kinds = ("framework", "framework", "framework", "attempt", "step", "ask")
    ops = [_framework_op(draw, draw.choice(kinds)) for _ in range(draw.randint(1, 3))]
    if draw.random() < 0.3:
        branches = tuple((_framework_op(draw, "framework"),) for _ in range(2))
        ops.insert(draw.randrange(len(ops) + 1), Op("gather", branches=branches))
    return Program((*ops, Op("answer", how="same")), is_stubborn=draw.random() < 0.3)


def _framework_op(draw: random.Random, kind: str) -> Op:
    if kind == "step":
        return Op(kind, f"s{draw.randrange(100)}", "works", draw.choice(("once", "safe")), 0.05)
    tools = " ".join(draw.choices(("framework_once", "framework_safe", "framework_ask"), k=draw.randint(1, 3)))
    how = draw.choice(("works", "works", "fails", "kills", "kills in its message", "fickle"))
    return Op(kind, tools, how, seconds=draw.choice((0.0, 0.05, 0.4)))


def _op(draw: random.Random, depth: int) -> Op:
    weights = {kind: each for kind, each in _WEIGHTS.items() if depth < DEPTH_MAX or kind not in ("gather", "first")}
    kind = draw.choices(list(weights), list(weights.values()))[0]
    how = draw.choices(list(_HOW[kind]), list(_HOW[kind].values()))[0] if kind in _HOW else ""
    match kind:
        case "step":
            retry = draw.choice(("once", "once", "idempotent", "safe"))
            seconds = draw.choice((0.0, 0.0, 0.05, 0.4))
            return Op(kind, f"s{draw.randrange(100)}", how, retry, seconds, is_strict=draw.random() < 0.5)
        case "call":
            return Op(kind, draw.choice(("once", "safe", "ask", "ask", "ide", "nothing")))
        case "sleep":
            return Op(kind, seconds=draw.choice((0.2, 1.3, 2.5)))
        case "version":
            return Op(kind, f"v{draw.randrange(100)}")
        case "gather" | "first":
            branches = [
                tuple(_op(draw, depth + 1) for _ in range(draw.randint(1, 2))) for _ in range(draw.randint(2, 3))
            ]
            return Op(kind, branches=tuple(branches))
    return Op(kind, how=how)
