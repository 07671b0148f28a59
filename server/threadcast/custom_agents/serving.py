"""Serves agents of other frameworks: what every `serve` of `threadcast.agents` builds on.

    def serve(agent: Agent, *, name: str, policies: Mapping[str, Policy] | None = None) -> None:
        async def run(ctx: AgentContext) -> None: ...
        serve_agent(run, name=name, tools=[AgentTool(...) for each in agent.tools])

`serve` is called in the operator's file; `app_file_of` takes the agents that were served while it loaded the file.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from threadcast.custom_agents.agent import Agent
from threadcast.custom_agents.context import AgentContext
from threadcast.tools.base import DEFAULT_TIMEOUT_SECONDS, Policy, Retry, ToolOutput, ToolResult
from threadcast.tools.context import ToolContext
from threadcast.tools.python import result_of
from threadcast.tools.traits import NO_TRAITS, Traits
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["AgentTool", "bound_call", "running", "serve_agent", "served"]

_served: ContextVar[list[Agent] | None] = ContextVar("the agents that the file being loaded has served", default=None)

bound_call: ContextVar[Callable[[JsonObject, ToolContext], Any] | None] = ContextVar("bound_call", default=None)
"""The function that carries out the call which runs now; only the agent that makes the call has it."""


class AgentTool:
    """A tool that an agent carries out itself, inside its framework. It stands in the list of tools and under the
    policies like every other, but runs only in a run of its agent."""

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

    def __repr__(self) -> str:
        return f"<tool {self.name} of an agent>"

    async def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        """Yield the result of the function that the agent has bound to the call. Raises ToolFailed: a chat without this
        agent calls the tool."""
        function = bound_call.get()
        if function is None:
            raise ToolFailed(f"The tool {self.name} can be used only by its agent.")
        value = await function(arguments, context)
        yield value if isinstance(value, ToolResult) else result_of(value)


def serve_agent(
    function: Callable[[AgentContext], Coroutine[Any, Any, None]],
    *,
    name: str,
    title: str = "",
    description: str = "",
    tools: Sequence[AgentTool] = (),
) -> Agent:
    """Serve a durable agent under the profile `name`, and return it.

    Raises:
        TypeError: the name is invalid.
    """
    served_agent = Agent(function, name=name, title=title, description=description, tools=list(tools))
    held = _served.get()
    if held is not None:
        held.append(served_agent)
    return served_agent


@contextmanager
def served() -> Iterator[list[Agent]]:
    """Collect the agents that are served during the block."""
    found: list[Agent] = []
    token = _served.set(found)
    try:
        yield found
    finally:
        _served.reset(token)


@contextmanager
def running(function: Callable[[JsonObject, ToolContext], Any]) -> Iterator[None]:
    """Bind `function` to the call that runs during the block."""
    token = bound_call.set(function)
    try:
        yield
    finally:
        bound_call.reset(token)
