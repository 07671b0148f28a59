"""Tools that are data only: the plan looks at their policy, nobody runs them."""

from collections.abc import AsyncIterator

import msgspec

from protocol.messages import JsonObject
from server.tools.base import Policy, Retry, ToolContext, ToolOutput, ToolResult
from server.tools.traits import NO_TRAITS, Traits

__all__ = ["FakeTool"]


class FakeTool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    policy: Policy = "auto"
    retry: Retry = "once"
    category: str = ""
    description: str = "a tool"
    input_schema: JsonObject = {}
    timeout_seconds: float = 30.0
    source: str = "python"
    hide_input: bool = False
    label_arg: str | None = None
    traits: Traits = NO_TRAITS

    async def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        yield ToolResult(content="ok")
