"""A runner of tools, the reports of its calls, and tools made from a test's functions.

The tests of the runner use this module.
"""

from collections.abc import Callable

import anyio
from msgspec.structs import replace

from threadcast.tools.base import ToolOutput, ToolResult
from threadcast.tools.context import Report, ToolContext
from threadcast.tools.python import PythonTool, tool
from threadcast.tools.runner import ToolRun, ToolRunner
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.principal import LOCAL

__all__ = [
    "GRACE_SECONDS",
    "Desk",
    "failure_of",
    "made",
    "outputs_of",
    "result_of",
    "tool_context",
]

GRACE_SECONDS = 0.05
"""Seconds that a cancelled tool gets to end; few, so that tests of tools that never end are short."""


_ANYWHERE = ToolContext(
    chat_id="chat",
    run_id="run",
    tool_call_id="call",
    idempotency_key="chat:call",
    principal=LOCAL,
    metadata={},
    context={},
    data_dir="/nowhere",
    report=lambda report: None,
    is_cancelled=lambda: False,
)


def tool_context(**fields: object) -> ToolContext:
    """Return the context of a call whose reports are dropped, with these fields changed."""
    return replace(_ANYWHERE, **fields)


class Desk:
    """A runner, and the progress that its calls reported."""

    def __init__(self) -> None:
        self.runner = ToolRunner(cancel_grace_seconds=GRACE_SECONDS)
        self.reports: list[Report] = []
        self.context = tool_context(report=self.reports.append)

    async def run(self, made: PythonTool | None, arguments: str = "{}") -> ToolRun:
        with anyio.fail_after(30):
            return await self.runner.run(made, "t", arguments, self.context, ["clock", "t"])


def made(function: Callable[..., object], *, timeout_seconds: float = 5) -> PythonTool:
    return tool(name="t", timeout_seconds=timeout_seconds)(function)


async def failure_of(made: PythonTool | None, arguments: str = "{}") -> str:
    done = await Desk().run(made, arguments)
    assert done.result.failed
    return done.result.content


async def outputs_of(made: PythonTool, arguments: JsonObject | None = None, **fields: object) -> list[ToolOutput]:
    """Return the items that a tool yields when it runs without a runner; `fields` are set in its context."""
    with anyio.fail_after(30):
        return [output async for output in made.run(arguments or {}, tool_context(**fields))]


async def result_of(made: PythonTool, arguments: JsonObject | None = None) -> str:
    last = (await outputs_of(made, arguments))[-1]
    assert isinstance(last, ToolResult)
    return last.content
