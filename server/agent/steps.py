"""The steps of a run that are carried out outside the log: ask the model, run a tool, sum up, or wait.

The plan returns one; the loop carries it out; its result is committed, and the plan is asked again.
"""

from typing import TypeAlias

import msgspec

from protocol.messages import ToolCall

__all__ = ["CallModel", "RunTool", "Step", "Summarize", "Wait"]


class CallModel(msgspec.Struct, frozen=True):
    """Ask the model. `continuing`: the open draft is this very answer, broken off or taken up again; go on after it."""

    run_id: str
    message_id: str
    model: str
    with_tools: bool = True
    continuing: bool = False


class RunTool(msgspec.Struct, frozen=True):
    """Run `call` with `arguments` (the JSON text that the model wrote, or a person's edit of it).

    `index` counts calls within the run; `at_ms` is when it was announced, Unix milliseconds. `beside` are calls of safe
    tools that run at the same time; their results are said after this one's, in this order (LOOP-3).
    """

    run_id: str
    call: ToolCall
    arguments: str
    index: int = 0
    at_ms: int = 0
    beside: tuple["RunTool", ...] = ()


class Summarize(msgspec.Struct, frozen=True, kw_only=True):
    """Ask `model` to sum up the messages from `first` to `last`, ids of the path: `covered` of the `before` messages
    that the next round would show the model."""

    run_id: str
    model: str
    first: str
    last: str
    before: int
    covered: int


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do until the next command: at rest, or parked."""


Step: TypeAlias = CallModel | RunTool | Summarize | Wait
