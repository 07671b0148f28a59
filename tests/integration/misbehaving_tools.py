"""Tools for tests (`--app`) that hang, fail, ask, and report where they ran."""

import asyncio
import time
from pathlib import Path

from threadcast.tools.context import ToolContext
from threadcast.tools.python import tool


@tool()
async def hang() -> str:
    """Never answers."""
    await asyncio.Event().wait()
    return ""


@tool()
def hang_in_thread() -> str:
    """Sleeps in a way that cannot be cancelled."""
    time.sleep(5)
    return ""


@tool()
async def swallows_cancellation() -> str:
    """Ignores its cancellation."""
    for _ in range(50):
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            continue
    return ""


@tool()
def fail() -> str:
    """Raises."""
    raise RuntimeError("a private detail")


@tool(timeout_seconds=0.2)
async def too_slow() -> str:
    """Runs past its time limit."""
    await asyncio.sleep(60)
    return ""


@tool(policy="ask", retry="safe")
def asks(text: str = "") -> str:
    """Needs a person's approval first."""
    return f"allowed: {text}"


@tool(policy="deny")
def forbidden() -> str:
    """Never runs."""
    return "ran"


@tool(retry="once", timeout_seconds=60)
async def leaves_a_mark(context: ToolContext, seconds: float = 0.0) -> str:
    """Writes one line for each time it runs, then takes a while."""
    marks = Path(context.data_dir) / f"{context.chat_id}.marks"
    marks.parent.mkdir(parents=True, exist_ok=True)
    with marks.open("a") as file:
        file.write("ran\n")
    await asyncio.sleep(seconds)
    return "marked"
