"""Serves agents of other frameworks: the common part of every `serve` of `threadcast.agents`.

    def serve(agent: Agent, *, name: str, policies: Mapping[str, Policy] | None = None) -> None:
        async def run(ctx: AgentContext) -> None: ...
        serve_agent(run, name=name, tools=[AgentTool(...) for each in agent.tools])

`serve` is called in the operator's file; `app_file_of` takes the agents that were served while it loaded the file.
"""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from threadcast.custom_agents.agent import Agent
from threadcast.custom_agents.context import AgentContext
from threadcast.tools.agent_tool import AgentTool

__all__ = ["AgentTool", "serve_agent", "served"]

_served: ContextVar[list[Agent] | None] = ContextVar("the agents that the file being loaded has served", default=None)


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
