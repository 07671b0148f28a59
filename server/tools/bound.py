"""A tool whose arguments are completed from the request's context, as a profile sees it (LOOP-11).

The model need not know what the context says: bound arguments stay in the schema, so that it may name another thing of
the same kind, but are required no longer. What completes them is `agent/calls/bindings.py`; this is data for it and for
the catalogue.
"""

from collections.abc import AsyncIterator, Sequence

from msgspec.structs import replace

from protocol.messages import JsonObject
from server.tools.base import Tool, ToolContext, ToolOutput
from server.tools.traits import Binding

__all__ = ["BoundTool", "without_bound"]


class BoundTool:
    """A `Tool` that runs as `tool` does, with `bindings` before those of its author: for one argument the first that
    has a value fills it."""

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
    """`schema` that asks the model for none of the bound arguments."""
    named = {binding.arg for binding in bindings}
    required = schema.get("required")
    if not isinstance(required, list) or named.isdisjoint(required):
        return schema
    left = [name for name in required if name not in named]
    return {
        **{key: value for key, value in schema.items() if key != "required"},
        **({"required": left} if left else {}),
    }
