"""Tools with which a model delegates work to other chats, waiting for the answer or in the background.

An operator's `--app` file offers them with `from threadcast.tools.agents import *`. The model chooses among the
profiles of its own profile's `delegate_to` (all profiles if it is unset), each with its own tools and approvals. Tools
that a user disabled in the chat stay disabled in its child chats.
"""

from typing import Annotated

from threadcast.tools.base import ToolResult
from threadcast.tools.context import ToolContext
from threadcast.tools.python import tool

__all__ = ["agent_status", "delegate", "start_agent", "stop_agent"]

DELEGATE_TIMEOUT_SECONDS = 1_800
"""Timeout of a delegated task: half an hour, since the task may have many rounds and approvals. At the timeout its chat
is stopped."""

Task = Annotated[str, "the task with all necessary information, since the new chat does not contain this chat"]
Mode = Annotated[str, "the profile of the new chat; empty for the profile of this chat"]
Title = Annotated[str, "a short title for users"]


@tool(retry="idempotent", timeout_seconds=DELEGATE_TIMEOUT_SECONDS, label_arg="title")
async def delegate(task: Task, ctx: ToolContext, mode: Mode = "", title: Title = "") -> ToolResult:
    """Hand a task to a chat of its own and wait for its answer."""
    result = await ctx.chats.run(task, mode=mode, title=title)
    if result.outcome == "complete":
        return ToolResult(content=result.text)
    return ToolResult(content=f"The chat ended without an answer ({result.outcome}). {result.text}", failed=True)


@tool(retry="idempotent", label_arg="title")
async def start_agent(
    task: Task,
    ctx: ToolContext,
    mode: Mode = "",
    title: Title = "",
    wake: Annotated[bool, "whether to begin a run of this chat when the agent has ended"] = False,
) -> str:
    """Start a background agent and go on at once. A message tells you when the agent has ended."""
    agent_id = await ctx.chats.start(task, mode=mode, title=title, wake=wake)
    return f"Background agent {agent_id} has started."


@tool(retry="safe")
async def agent_status(ctx: ToolContext) -> str:
    """List the background agents of this chat, with their status and the beginning of their answers."""
    lines = [
        f"- {agent.agent_id} ({agent.title}): {agent.status}" + (f"\n{agent.summary}" if agent.summary else "")
        for agent in ctx.chats.agents()
    ]
    return "\n".join(lines) or "There are no background agents in this chat."


@tool(retry="idempotent")
async def stop_agent(agent_id: str, ctx: ToolContext) -> str:
    """Stop a background agent."""
    await ctx.chats.stop(agent_id)
    return f"Background agent {agent_id} is being stopped."
