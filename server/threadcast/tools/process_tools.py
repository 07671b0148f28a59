"""Tools with which a model runs programs in the background: a server, a watcher, a long build.

An operator's `--app` file offers them with `from threadcast.tools.process_tools import *`. Programs run as the server's
user, so each start needs approval, unless the chat approves all dangerous tools.
"""

from typing import Annotated

from threadcast.tools.context import ToolContext
from threadcast.tools.python import tool

__all__ = ["read_process", "start_process", "stop_process"]

READ_CHARACTERS = 8_000
"""Maximum characters returned from the end of a process's output, which are some hundred lines."""


@tool(policy="ask", category="dangerous", label_arg="description")
async def start_process(
    command: Annotated[str, "a line for sh"],
    ctx: ToolContext,
    directory: Annotated[str, "the working directory; empty for the tools' own directory"] = "",
    description: Annotated[str, "a short description for users"] = "",
    wake: Annotated[bool, "whether to begin a run of this chat when the process has ended"] = False,
) -> str:
    """Start a program in the background and go on at once. A message tells you when the program has ended."""
    process_id = await ctx.processes.start(
        ["/bin/sh", "-c", command], cwd=directory, description=description or command, wake=wake
    )
    return f"Process {process_id} has started."


@tool(retry="safe")
async def read_process(process_id: str, ctx: ToolContext) -> str:
    """Return the status of a process and the end of its output."""
    view = ctx.processes.read(process_id)
    code = "" if view.exit_code is None else f", exit code {view.exit_code}"
    return f"{view.status}{code}\n{view.output[-READ_CHARACTERS:]}".rstrip()


@tool(retry="idempotent")
async def stop_process(process_id: str, ctx: ToolContext) -> str:
    """End a process and all processes that it started."""
    await ctx.processes.kill(process_id)
    return f"Process {process_id} has been stopped."
