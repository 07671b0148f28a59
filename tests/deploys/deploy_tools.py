"""Tools for tests, given to workers by `--app`: they run for a while and report progress, so that a test sees a change
of owner while they run. Each run writes a line, and tests count these lines; all runs after the first are short."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from threadcast.tools.agents import delegate
from threadcast.tools.base import ToolResult
from threadcast.tools.context import Progress, ToolContext
from threadcast.tools.process_tools import read_process, start_process
from threadcast.tools.python import PythonTool, tool

__all__ = ["asks", "deaf", "delegate", "once", "read_process", "run_process", "safe"]

TICK_SECONDS = 0.05
TICKS_AGAIN = 3
FINISH_TICKS = 6

run_process = PythonTool(start_process.function, name="run_process")


def _mark(context: ToolContext) -> int:
    """Return how often a tool has begun in this chat, this time included."""
    marks = Path(context.data_dir) / f"{context.chat_id}.marks"
    marks.parent.mkdir(parents=True, exist_ok=True)
    with marks.open("a") as file:
        file.write("ran\n")
    return len(marks.read_text().splitlines())


async def _ticks(context: ToolContext, ticks: int) -> AsyncIterator[Progress | ToolResult]:
    """To end the tool soon, a test creates a file beside the marks; then `FINISH_TICKS` ticks remain."""
    finish = Path(context.data_dir) / f"{context.chat_id}.finish"
    if _mark(context) > 1:
        ticks = min(ticks, TICKS_AGAIN)
    for number in range(ticks):
        yield Progress(stage="working", message=str(number), fraction=number / ticks)
        await asyncio.sleep(TICK_SECONDS)
        if finish.exists():
            await asyncio.sleep(FINISH_TICKS * TICK_SECONDS)
            break
    yield ToolResult(content="All ticks are over.")


@tool(retry="safe", timeout_seconds=60)
async def safe(context: ToolContext, ticks: int = 20) -> AsyncIterator[Progress | ToolResult]:
    """May run again."""
    async for each in _ticks(context, ticks):
        yield each


@tool(retry="once", timeout_seconds=60)
async def once(context: ToolContext, ticks: int = 20) -> AsyncIterator[Progress | ToolResult]:
    """A tool that must not run twice."""
    async for each in _ticks(context, ticks):
        yield each


@tool(retry="once", timeout_seconds=60)
async def deaf(context: ToolContext) -> str:
    """A tool that ignores its cancellation."""
    _mark(context)
    context.report(Progress(stage="working"))
    for _ in range(400):
        try:
            await asyncio.sleep(TICK_SECONDS)
        except asyncio.CancelledError:
            continue
    return ""


@tool(policy="ask", retry="safe")
def asks(text: str = "") -> str:
    """A tool that needs a person's approval first."""
    return f"allowed: {text}"
