"""The model and the tools of a schedule: their answers depend on their input alone.

The last word of a user's text selects the model's behaviour: `say`, `slow`, `hang`, `once`, `safe`, `ask`, `ide`,
`kill`. So the right text of every answer can be computed from the log alone, whichever process wrote the answer.
`answer_to` is the only source of text.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, ClassVar

import anyio

from tests.sim.loop import PROCESS
from threadcast.providers.base import Delta, Finished, ModelInfo, Request, TextDelta, ToolCallDelta
from threadcast.tools.agent_tool import AgentTool
from threadcast.tools.base import (
    Policy,
    Retry,
    Tool,
    ToolOutput,
    ToolResult,
)
from threadcast.tools.client import ClientTool
from threadcast.tools.context import ToolContext
from threadcast.tools.traits import NO_TRAITS
from threadcast_protocol.wire.messages import JsonObject

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["IDE_SECONDS", "TOOLS", "ScriptedModel", "SimTool", "answer_to"]

IDE_SECONDS = 1.5
"""Maximum seconds of a client tool, after which its timer fires."""

HANG_SECONDS = 120.0
"""Seconds of a model's silence, longer than any schedule, so that only an abort ends the call."""


def answer_to(words: str) -> str:
    """Return the model's answer to this text."""
    return f"To [{words[-60:]}] I say {len(words)}."


class ScriptedModel:
    """A `Provider`."""

    name = "sim"

    def __init__(self, world: "World", *, can_continue: bool) -> None:
        self._world = world
        self._can_continue = can_continue

    def models(self) -> list[ModelInfo]:
        return []

    def samplers(self, model: str) -> frozenset[str]:
        return frozenset()

    def prefills(self, model: str) -> bool:
        return self._can_continue

    async def aclose(self) -> None:
        """There is nothing to close."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        last = request.messages[-1]
        words = str(last.content)
        script = words.rpartition(" ")[2] if last.role == "user" else "say"
        text = answer_to(words).removeprefix(request.prefix)
        middle = len(text) // 2
        pause = 0.35 if script == "slow" else 0.02
        await anyio.sleep(pause)
        yield TextDelta(text[:middle])
        if script == "kill":
            self._world.kill_here("a model that kills its worker")
        await anyio.sleep(HANG_SECONDS if script == "hang" else pause)
        yield TextDelta(text[middle:])
        if script in TOOLS:
            yield ToolCallDelta(0, None, script, "{}")
            yield Finished("tool_calls")
        else:
            yield Finished("stop")


class SimTool:
    """A slow `Tool` that reports each of its runs, with the call, to the `world`."""

    world: "ClassVar[World]"

    description, category, source, label_arg, hide_input = "works", "", "python", None, False
    timeout_seconds = 30.0
    traits = NO_TRAITS
    input_schema: JsonObject = {"type": "object"}  # noqa: RUF012 - data, as every tool's

    def __init__(self, name: str, retry: Retry, policy: Policy) -> None:
        self.name = name
        self.retry: Retry = retry
        self.policy: Policy = policy

    async def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        began_at = self.world.loop.now
        self.world.tool_began(self.name, context.tool_call_id)
        await anyio.sleep(0.4)
        if self.retry == "once":
            self.world.silence.effect(PROCESS.get(), context.tool_call_id, began_at)
        yield ToolResult(content=f"{self.name} did {context.tool_call_id}")


TOOLS: dict[str, Tool] = {
    "once": SimTool("once", "once", "auto"),
    "safe": SimTool("safe", "safe", "auto"),
    "ask": SimTool("ask", "once", "ask"),
    "ide": ClientTool("ide", "a client's", timeout_seconds=IDE_SECONDS),
    "framework_once": AgentTool("framework_once"),
    "framework_safe": AgentTool("framework_safe", retry="safe"),
    "framework_ask": AgentTool("framework_ask", policy="ask"),
}
"""The tools by name, made once for all schedules of a Python process."""
