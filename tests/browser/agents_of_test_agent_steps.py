"""Durable agents for `test_agent_steps.py`, and a tool that needs an approval. A message to an agent names a directory;
the test creates a file in this directory when a step of the agent may end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from threadcast import AgentContext, Payload, StepFailed, agent, tool

__all__ = ["coder", "counter", "long_names", "planner", "send_mail"]

LONG = "https://example.org/" + "a" * 170


@tool(policy="ask")
def send_mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


async def wait_for(directory: str, name: str) -> str:
    """Wait for the file `name`."""
    while not (Path(directory) / name).exists():
        await asyncio.sleep(0.02)
    return name


def fail() -> None:
    raise ValueError("no such page")


@agent("planner", tools=[])
async def planner(ctx: AgentContext) -> None:
    """Makes a plan, and waits for several operations at once."""
    directory = str(ctx.messages[-1].content)
    await ctx.step("make plan", wait_for, directory, "plan")
    with contextlib.suppress(StepFailed):
        await ctx.step("fetch", fail)
    await ctx.gather(
        ctx.chats.run('call send_mail {"to": "mara"}', mode="agent", title="the reader"),
        ctx.ask("Which one?", ["short", "long"]),
        ctx.sleep(days=2_000),
        ctx.step("vote", wait_for, directory, "vote"),
    )


@agent("counter", tools=[])
async def counter(ctx: AgentContext) -> None:
    """Takes twenty steps."""
    for number in range(19):
        await ctx.step(f"step {number}", int)
    await ctx.step("step 19", wait_for, str(ctx.messages[-1].content), "end")
    await ctx.answer("All counted.")


@agent("long_names", tools=[])
async def long_names(ctx: AgentContext) -> None:
    """Has steps with long names."""
    with contextlib.suppress(StepFailed):
        await ctx.step(LONG, fail)
    await ctx.gather(
        ctx.ask("Which of these shall it be? " * 7),
        ctx.chats.run('call send_mail {"to": "mara"}', mode="agent", title=LONG),
        ctx.step(LONG, wait_for, str(ctx.messages[-1].content), "end"),
    )


@agent("coder", tools=[])
async def coder(ctx: AgentContext) -> None:
    """Show a plan, update it, and show the change of a file."""
    directory = str(ctx.messages[-1].content)

    async def says() -> AsyncIterator[object]:
        yield "I begin."

    await ctx.seam.message("says", says)
    todo = ["Read the code", "Change greet()", "Run the tests"]
    for done in range(3):
        words = ["completed"] * done + ["in_progress"] + ["pending"] * (2 - done)
        entries = [
            {"content": each, "status": word, "priority": "high"} for each, word in zip(todo, words, strict=True)
        ]
        await ctx.seam.show("plan", Payload("plan", {"entries": entries}, "Plan"))
        if done == 1:
            before, after = "def greet():\n    print('Hello')\n", "def greet(name):\n    print(f'Hello {name}')\n"
            await ctx.seam.show("diff", Payload("diff", {"path": "app.py", "before": before, "after": after}))
            await ctx.step("wait", wait_for, directory, "go")
