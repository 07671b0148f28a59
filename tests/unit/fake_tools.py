"""Tools that never run; the tests of the plan read only their policy."""

from collections.abc import AsyncIterator

import msgspec

from threadcast.tools.base import (
    Policy,
    Retry,
    ToolOutput,
    ToolResult,
)
from threadcast.tools.context import ToolContext
from threadcast.tools.traits import NO_TRAITS, Traits
from threadcast_protocol.wire.messages import JsonObject

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
