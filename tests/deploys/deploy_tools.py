"""Tools for tests, given to workers by `--app`: they take their time and tell how far they are, so that a change of
owner is seen while they run. Each run leaves a line, by which tests count runs; all after the first are short."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from server.tools.agents import delegate
from server.tools.base import Progress, ToolContext, ToolResult
from server.tools.process_tools import read_process, start_process
from server.tools.python import PythonTool, tool

__all__ = ["asks", "deaf", "delegate", "once", "read_process", "run_process", "safe"]

TICK_SECONDS = 0.05
TICKS_AGAIN = 3
FINISH_TICKS = 6

run_process = PythonTool(start_process.function, name="run_process")


def _mark(context: ToolContext) -> int:
    """How often a tool has begun in this chat, this time included."""
    marks = Path(context.data_dir) / f"{context.chat_id}.marks"
    marks.parent.mkdir(parents=True, exist_ok=True)
    with marks.open("a") as file:
        file.write("ran\n")
    return len(marks.read_text().splitlines())


async def _ticks(context: ToolContext, ticks: int) -> AsyncIterator[Progress | ToolResult]:
    """A test that knows how long it may still take lays a file beside the marks: then `FINISH_TICKS` are left."""
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
    """Must not run twice."""
    async for each in _ticks(context, ticks):
        yield each


@tool(retry="once", timeout_seconds=60)
async def deaf(context: ToolContext) -> str:
    """Does not listen when it is told to stop."""
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
    """Wants a person's word first."""
    return f"allowed: {text}"
