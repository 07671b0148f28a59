"""A runner of tools, what its calls reported, and tools made of a test's functions.

For the tests of the runner; the grace is short, so that tests of tools that never end are short.
"""

from collections.abc import Callable

import anyio

from protocol.principal import LOCAL
from server.tools.base import Report, ToolContext
from server.tools.python import PythonTool, tool
from server.tools.runner import ToolRun, ToolRunner

__all__ = [
    "GRACE_SECONDS",
    "Desk",
    "failure_of",
    "made",
]

GRACE_SECONDS = 0.05
"""Short, so that tests of tools that never end are short."""


class Desk:
    """A runner, and the progress that its calls reported."""

    def __init__(self) -> None:
        self.runner = ToolRunner(cancel_grace_seconds=GRACE_SECONDS)
        self.reports: list[Report] = []
        self.context = ToolContext(
            chat_id="chat",
            run_id="run",
            tool_call_id="call",
            idempotency_key="chat:call",
            principal=LOCAL,
            metadata={},
            context={},
            data_dir="/nowhere",
            report=self.reports.append,
            is_cancelled=lambda: False,
        )

    async def run(self, made: PythonTool | None, arguments: str = "{}") -> ToolRun:
        with anyio.fail_after(30):
            return await self.runner.run(made, "t", arguments, self.context, ["clock", "t"])


def made(function: Callable[..., object], *, timeout_seconds: float = 5) -> PythonTool:
    return tool(name="t", timeout_seconds=timeout_seconds)(function)


async def failure_of(made: PythonTool | None, arguments: str = "{}") -> str:
    done = await Desk().run(made, arguments)
    assert done.result.failed
    return done.result.content
