"""Wraps a tool with the operator's settings, which override the tool's own.

The wrapper is made when the server starts, and for MCP tools whenever their server connects. All code that runs or
describes a tool uses the wrapper.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack

from msgspec.structs import replace

from threadcast.chat.scopes import scope_at
from threadcast.settings import Tool as ToolSettings
from threadcast.tools.base import (
    DEFAULT_TIMEOUT_SECONDS,
    Policy,
    Retry,
    Tool,
    ToolOutput,
)
from threadcast.tools.bound import without_bound
from threadcast.tools.client import CLIENT_TIMEOUT_SECONDS
from threadcast.tools.context import ToolContext
from threadcast.tools.resolvers import Resolvers
from threadcast.tools.traits import Traits
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["OperatedTool"]


class OperatedTool:
    """Wraps `tool` with the operator's settings. `default_timeout_seconds` applies if neither the settings nor the tool
    set a timeout."""

    def __init__(self, tool: Tool, wanted: ToolSettings, default_timeout_seconds: float) -> None:
        self._tool = tool
        self.name = tool.name
        self.description = tool.description
        self.policy: Policy = wanted.policy or tool.policy
        own_retry: Retry = "safe" if self.policy == "preview" else tool.retry  # a preview has no effects
        self.retry: Retry = wanted.retry or own_retry
        own = None if tool.timeout_seconds == DEFAULT_TIMEOUT_SECONDS else tool.timeout_seconds
        usual = CLIENT_TIMEOUT_SECONDS if self.policy == "client" else default_timeout_seconds
        self.timeout_seconds = wanted.timeout_seconds or own or usual
        self.category = wanted.category or tool.category
        self.source = tool.source
        self.hide_input = tool.hide_input if wanted.hide_input is None else wanted.hide_input
        self.label_arg = wanted.label_arg or tool.label_arg
        self.traits = _traits(tool.traits, wanted)
        self._resolvers = Resolvers(self.traits.resolvers)
        self.input_schema: JsonObject = without_bound(tool.input_schema, self.traits.bindings)

    def __repr__(self) -> str:
        return repr(self._tool)

    def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        return self._run_resolved(arguments, context) if self.traits.resolvers else self._tool.run(arguments, context)

    async def _run_resolved(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        outputs = self._tool.run(await self._resolvers.resolved(arguments, context), context)
        async with AsyncExitStack() as stack:
            if isinstance(outputs, AsyncGenerator):
                stack.push_async_callback(outputs.aclose)
            async for output in outputs:
                yield output


def _traits(own: Traits, wanted: ToolSettings) -> Traits:
    """Return the traits with the operator's fields replaced; unset fields keep the tool's values."""
    return replace(
        own,
        scopes=own.scopes if wanted.scopes is None else tuple(map(scope_at, wanted.scopes)),
        required_role=wanted.required_role or own.required_role,
        payload_type=wanted.payload_type or own.payload_type,
        commit_tool=wanted.commit_tool or own.commit_tool,
        preview_type=wanted.preview_type or own.preview_type,
        preview_schema=wanted.preview_schema or own.preview_schema,
        visibility=wanted.result_visibility or own.visibility,
        summarize=own.summarize if wanted.summarize is None else tuple(wanted.summarize) or "first_sentence",
        forward_auth=own.forward_auth if wanted.forward_auth is None else wanted.forward_auth,
        untrusted=own.untrusted if wanted.untrusted is None else wanted.untrusted,
        approver=wanted.approver or own.approver,
        sensitive=own.sensitive if wanted.sensitive is None else wanted.sensitive,
    )
