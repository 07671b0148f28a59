"""Tools with which a model hands work to other chats: wait for one, or let it go on in the background.

For an operator's file: `from server.tools.agents import *` and `--app` offer them; nothing is offered unasked. The
model chooses among the profiles of its own profile's `delegate_to`, all of them where that is unset, each with its own
tools and approvals. Tools that a person disabled in the chat stay disabled below.
"""

from typing import Annotated

from server.tools.base import ToolContext, ToolResult
from server.tools.python import tool

__all__ = ["agent_status", "delegate", "start_agent", "stop_agent"]

DELEGATE_TIMEOUT_SECONDS = 1_800
"""Half an hour: a task of its own, with rounds and approvals; after that the chat is stopped."""

Task = Annotated[str, "what is to be done, with all that must be known for it: nothing of this chat is seen there"]
Mode = Annotated[str, "the profile that does it; empty for this one's"]
Title = Annotated[str, "a few words for people who watch"]


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
    wake: Annotated[bool, "begin a run of this chat when it has ended"] = False,
) -> str:
    """Start a background agent and go on at once. You are told when it has ended."""
    agent_id = await ctx.chats.start(task, mode=mode, title=title, wake=wake)
    return f"Background agent {agent_id} has started."


@tool(retry="safe")
async def agent_status(ctx: ToolContext) -> str:
    """The background agents of this chat: how each stands, and the beginning of its answer."""
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
