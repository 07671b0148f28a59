"""Tools that agents of other frameworks carry out themselves, inside their framework.

The list of tools and the policies include these tools like all others, but a tool runs only in a run of its agent, and
the agent binds the function of each call.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import msgspec

from threadcast.tools.base import DEFAULT_TIMEOUT_SECONDS, Policy, Retry, ToolOutput, ToolResult
from threadcast.tools.context import ToolContext
from threadcast.tools.python import result_of
from threadcast.tools.traits import NO_TRAITS, Traits
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["AgentTool", "CallFunction", "DeclaredAgentTool", "carried_out_by"]

CallFunction: TypeAlias = Callable[[JsonObject, ToolContext], Awaitable[Any]]  # Any: what a tool returns
"""Runs one call with its arguments, after bindings and a person's edits were applied. The function returns any value
that a tool may return: a text, a `ToolResult`, or JSON. To fail, it raises `ToolFailed` with a sentence for the
model."""

_bound: ContextVar[CallFunction | None] = ContextVar("the function of the call that runs now", default=None)


class DeclaredAgentTool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool that a framework declares during a run, because it was not known when the server started. The operator's
    `[tools.NAME]` overrides its values."""

    name: str
    description: str = ""
    input_schema: JsonObject = msgspec.field(default_factory=lambda: {"type": "object"})
    policy: Policy = "auto"
    retry: Retry = "once"
    timeout_seconds: float | None = None


class AgentTool:
    """A `Tool` of an agent. `policy` and `retry` are the defaults, which the operator's `[tools.NAME]` overrides."""

    source = "agent"
    category = ""
    hide_input = False
    label_arg: str | None = None

    def __init__(
        self,
        name: str,
        *,
        description: str = "",
        input_schema: JsonObject | None = None,
        policy: Policy = "auto",
        retry: Retry = "once",
        timeout_seconds: float | None = None,
        traits: Traits = NO_TRAITS,
    ) -> None:
        self.name = name
        self.description = description
        self.input_schema: JsonObject = input_schema or {"type": "object"}
        self.policy: Policy = policy
        self.retry: Retry = retry
        self.timeout_seconds = timeout_seconds or DEFAULT_TIMEOUT_SECONDS
        self.traits = traits

    @classmethod
    def declared(cls, spec: DeclaredAgentTool) -> "AgentTool":
        return cls(**{name: getattr(spec, name) for name in spec.__struct_fields__})

    def __repr__(self) -> str:
        return f"<tool {self.name} of an agent>"

    async def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        """Yield the result of the function that the agent has bound to the call. Raises ToolFailed: a chat without this
        agent calls the tool."""
        function = _bound.get()
        if function is None:
            raise ToolFailed(f"The tool {self.name} can be used only by its agent.")
        value = await function(arguments, context)
        yield value if isinstance(value, ToolResult) else result_of(value)


@contextmanager
def carried_out_by(function: CallFunction) -> Iterator[None]:
    """Bind `function` to the call that runs during the block."""
    token = _bound.set(function)
    try:
        yield
    finally:
        _bound.reset(token)
