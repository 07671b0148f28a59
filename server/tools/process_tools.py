"""Tools with which a model runs programs in the background: a server, a watcher, a long build.

For an operator's file: `from server.tools.process_tools import *` and `--app` offer them; nothing is offered unasked.
What runs here runs as the server's user, so each start asks a person, unless dangerous commands are approved wholesale.
"""

from typing import Annotated

from server.tools.base import ToolContext
from server.tools.python import tool

__all__ = ["read_process", "start_process", "stop_process"]

READ_CHARACTERS = 8_000
"""Of the end of what a process printed: some hundred lines."""


@tool(policy="ask", category="dangerous", label_arg="description")
async def start_process(
    command: Annotated[str, "a line for sh"],
    ctx: ToolContext,
    directory: Annotated[str, "where to run it; empty for the tools' own directory"] = "",
    description: Annotated[str, "a few words for people who watch"] = "",
    wake: Annotated[bool, "begin a run of this chat when it has ended"] = False,
) -> str:
    """Start a program in the background and go on at once. You are told when it has ended."""
    process_id = await ctx.processes.start(
        ["/bin/sh", "-c", command], cwd=directory, description=description or command, wake=wake
    )
    return f"Process {process_id} has started."


@tool(retry="safe")
async def read_process(process_id: str, ctx: ToolContext) -> str:
    """How a process stands, and the end of what it printed."""
    view = ctx.processes.read(process_id)
    code = "" if view.exit_code is None else f", exit code {view.exit_code}"
    return f"{view.status}{code}\n{view.output[-READ_CHARACTERS:]}".rstrip()


@tool(retry="idempotent")
async def stop_process(process_id: str, ctx: ToolContext) -> str:
    """End a process and all that it started."""
    await ctx.processes.kill(process_id)
    return f"Process {process_id} has been stopped."
