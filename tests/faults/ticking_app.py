"""A tool that may not run twice and that records its running time in a file; tests/faults/test_silent_owner.py loads it
by `--app`."""

import asyncio
from pathlib import Path

from threadcast import ToolContext, tool

__all__ = ["ticks"]

TICK_SECONDS = 0.02


@tool(retry="once", timeout_seconds=60)
async def ticks(context: ToolContext, count: int = 500) -> str:
    """Writes a line every 20 ms."""
    path = Path(context.data_dir) / f"{context.chat_id}.ticks"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", buffering=1) as file:
        for _ in range(count):
            file.write("tick\n")
            await asyncio.sleep(TICK_SECONDS)
    return "ticked"
