"""Tools for tests of the loop: they wait for each other or until a test releases them, and change the chat in which
they run."""

import asyncio
from collections import defaultdict

from threadcast.tools.base import ToolResult
from threadcast.tools.context import Progress, ToolContext
from threadcast.tools.python import tool

_here: dict[str, asyncio.Event] = defaultdict(asyncio.Event)  # the calls that have arrived, by chat and name


@tool(retry="safe")
async def meet(context: ToolContext, me: str, other: str) -> str:
    """Return once the other call runs too; a call without the other would wait until its timeout."""
    context.report(Progress(message=f"{me} is here"))
    _here[f"{context.chat_id}:{me}"].set()
    await _here[f"{context.chat_id}:{other}"].wait()
    return f"{me} met {other}"


@tool()
async def gate(name: str) -> str:
    """A gate at which calls wait until a test opens it."""
    await _here[f"gate:{name}"].wait()
    return "through"


@tool()
async def open_gate(name: str) -> str:
    """Release the calls that wait at the gate."""
    _here[f"gate:{name}"].set()
    return "open"


@tool()
def file_under(key: str, value: str) -> ToolResult:
    """Write into the thread's metadata."""
    return ToolResult(content="filed", metadata_patch={key: value})
