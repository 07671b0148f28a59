"""Durable agents that answer like the demo models, for `threadcast conformance --mode`. A server loads this file by
`--app`.

`echo` answers like `demo/echo`. The agent `player` plays the demo model that the chat's parameter `model` names, with
its options: one of `PLAYED`. The agent cannot play `demo/tools`, because each call of a durable agent has a separate
assistant message, nor `demo/error`, because a failure of an agent's code has another error code than a model's failure.
"""

from collections.abc import AsyncIterator

from threadcast import AgentContext, Reasoning, Text, Usage, agent
from threadcast.providers.base import ReasoningDelta, Request, TextDelta, UsageReported
from threadcast.providers.demo.models import Demo
from threadcast_protocol.wire.messages import text_of

__all__ = ["PLAYED", "echo", "player"]

PLAYED = ("demo/echo", "demo/essay", "demo/reasoning", "demo/hang")


async def _played(ctx: AgentContext) -> AsyncIterator[Text | Reasoning | Usage]:
    model = str(ctx.params["model"]).removeprefix("demo/")
    async for delta in Demo().stream(Request(model=model, messages=list(ctx.messages))):
        if isinstance(delta, TextDelta):
            yield Text(delta.text)
        elif isinstance(delta, ReasoningDelta):
            yield Reasoning(delta.text)
        elif isinstance(delta, UsageReported):
            yield delta.usage


@agent("echo", tools=[])
async def echo(ctx: AgentContext) -> None:
    """Repeats the message."""
    asked = next(each for each in reversed(ctx.messages) if each.role == "user")
    text = await ctx.step("echo", lambda: f"You said: {text_of(asked.content)}", retry="safe")
    await ctx.answer(lambda: [text, Usage(1, 1, 2)])


@agent("player", tools=[])
async def player(ctx: AgentContext) -> None:
    """Answers like the demo model that the chat names."""
    await ctx.answer(_played, ctx)
