"""Makes those arguments of a tool optional that the profile's bindings fill in from the request's context (LOOP-11).

The model need not repeat values of the context: bound arguments stay in the schema, so that the model may choose
another value, but they become optional. `agent_loop/calls/bindings.py` fills in the arguments; this class only
describes the bindings.
"""

from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from threadcast.tools.base import Tool, ToolOutput
from threadcast.tools.context import ToolContext
from threadcast.tools.traits import Binding
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["BoundTool", "without_bound"]


class BoundTool:
    """Wraps `tool` and puts `bindings` before the bindings of the tool's author. The first binding with a value fills
    the argument."""

    def __init__(self, tool: Tool, bindings: Sequence[Binding]) -> None:
        self._tool = tool
        self.name = tool.name
        self.description = tool.description
        self.input_schema = without_bound(tool.input_schema, bindings)
        self.policy = tool.policy
        self.retry = tool.retry
        self.timeout_seconds = tool.timeout_seconds
        self.category = tool.category
        self.source = tool.source
        self.hide_input = tool.hide_input
        self.label_arg = tool.label_arg
        self.traits = replace(tool.traits, bindings=(*bindings, *tool.traits.bindings))

    def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        return self._tool.run(arguments, context)


def without_bound(schema: JsonObject, bindings: Sequence[Binding]) -> JsonObject:
    """Return `schema` with the bound arguments made optional."""
    named = {binding.arg for binding in bindings}
    required = schema.get("required")
    if not isinstance(required, list) or named.isdisjoint(required):
        return schema
    left = [name for name in required if name not in named]
    return {
        **{key: value for key, value in schema.items() if key != "required"},
        **({"required": left} if left else {}),
    }
