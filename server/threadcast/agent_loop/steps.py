"""The steps of a run: ask the model, run a tool, run a durable agent, sum up, or wait.

The plan returns a step. The loop carries out the step, commits the result, and then asks the plan for the next step.
"""

from typing import TypeAlias

import msgspec

from threadcast_protocol.wire.messages import ToolCall

__all__ = ["CallModel", "RunAgent", "RunTool", "Step", "Summarize", "Wait"]


class CallModel(msgspec.Struct, frozen=True):
    """Ask the model. If `continuing` is true, the open draft is the beginning of the answer, which the model must
    continue."""

    run_id: str
    message_id: str
    model: str
    with_tools: bool = True
    continuing: bool = False


class RunTool(msgspec.Struct, frozen=True):
    """Run `call` with `arguments` (the JSON text that the model wrote, or a person's edit of it).

    `index` is the number of the call in the run. `at_ms` is the time of the announcement in Unix milliseconds. `beside`
    are calls of safe tools that run at the same time. Their results are written after the result of `call`, in the
    order of `beside` (LOOP-3).
    """

    run_id: str
    call: ToolCall
    arguments: str
    index: int = 0
    at_ms: int = 0
    beside: tuple["RunTool", ...] = ()


class Summarize(msgspec.Struct, frozen=True, kw_only=True):
    """Ask `model` to sum up the messages of the path from the id `first` to the id `last`. The summary replaces
    `covered` of the `before` messages that the history has without the summary."""

    run_id: str
    model: str
    first: str
    last: str
    before: int
    covered: int


class RunAgent(msgspec.Struct, frozen=True):
    """Run the function of the durable agent `name` from its beginning. Operations that are recorded in the journal
    return their recorded results."""

    run_id: str
    name: str


class Wait(msgspec.Struct, frozen=True):
    """Do nothing until the next command, because the chat is at rest or its run is parked."""


Step: TypeAlias = CallModel | RunTool | RunAgent | Summarize | Wait
