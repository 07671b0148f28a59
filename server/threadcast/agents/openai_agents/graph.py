"""The agents of a handoff graph: their tools, and their copies for one run, in which models, tools, guardrails and
handoffs are recorded."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from agents import Agent, FunctionTool, Handoff, HostedMCPTool, RunContextWrapper, handoff
from agents.models.interface import Model
from agents.tool import CodeInterpreterTool, FileSearchTool, ImageGenerationTool, Tool, WebSearchTool

from threadcast.agents.openai_agents.guardrails import recorded_input_guardrail, recorded_output_guardrail
from threadcast.agents.openai_agents.models import Messages, RecordedModel, is_nested
from threadcast.agents.openai_agents.tools import Settings, recorded_tool
from threadcast.custom_agents.seam import Seam
from threadcast.tools.agent_tool import AgentTool

__all__ = ["AGENTS_MAX", "Copies", "agent_tools", "agents_of"]

AGENTS_MAX = 200
"""Maximum agents in a handoff graph."""

_HOSTED = (CodeInterpreterTool, FileSearchTool, HostedMCPTool, ImageGenerationTool, WebSearchTool)


def agents_of(first: Agent[Any]) -> list[Agent[Any]]:
    """Return `first` and the agents to which it can hand over, directly or through other agents. Raises TypeError:
    there are more than `AGENTS_MAX` agents."""
    found: dict[int, Agent[Any]] = {}
    waiting = [first]
    while waiting:
        agent = waiting.pop(0)
        if id(agent) not in found:
            found[id(agent)] = agent
            waiting.extend(_targets(agent))
        if len(found) > AGENTS_MAX:
            raise TypeError(f"agent {first.name!r}: its handoffs reach more than {AGENTS_MAX} agents")
    return list(found.values())


def agent_tools(agents: list[Agent[Any]], settings: Settings) -> list[AgentTool]:
    """Return the function tools of the agents, as the server lists them. An agent's MCP servers report their tools only
    when a run begins.

    Raises:
        TypeError: a tool cannot be recorded; two different tools have the same name; or a policy is set for an unknown
            tool.
    """
    by_name: dict[str, tuple[FunctionTool, AgentTool]] = {}
    for agent in agents:
        for tool in agent.tools:
            _check(agent, tool)
            if isinstance(tool, FunctionTool):
                made = settings.agent_tool(tool)
                known, _ = by_name.setdefault(made.name, (tool, made))
                if known.params_json_schema != tool.params_json_schema:
                    raise TypeError(f"agent {agent.name!r}: another agent of the graph has another tool {made.name!r}")
    known_names = {tool.qualified_name for tool, _ in by_name.values()}
    unknown = {*settings.policies, *settings.retry} - known_names
    if unknown and not any(agent.mcp_servers for agent in agents):
        raise TypeError(f"no agent has the tools {sorted(unknown)}; known: {sorted(known_names)}")
    return [made for _, made in by_name.values()]


class Copies:
    """The copies of agents for one run. Each agent is copied once, when it is first reached."""

    def __init__(self, settings: Settings, seam: Seam, messages: Messages, context: Any) -> None:
        self._settings = settings
        self._seam = seam
        self._messages = messages
        self._context: RunContextWrapper[Any] = RunContextWrapper(context)
        self._copies: dict[int, tuple[Agent[Any], Agent[Any]]] = {}

    async def of(self, agent: Agent[Any]) -> Agent[Any]:
        """Return the copy of an agent, with the tools of its MCP servers."""
        if id(agent) in self._copies:
            return self._copies[id(agent)][1]
        mcp_tools = await agent.get_mcp_tools(self._context) if agent.mcp_servers else []
        of_servers = [each for each in mcp_tools if isinstance(each, FunctionTool)]
        if of_servers:
            await self._seam.declare([self._settings.declared(each) for each in of_servers])
        changed: dict[str, Any] = {
            "tools": [self._tool(each) for each in (*of_servers, *agent.tools)],
            "mcp_servers": [],
            "handoffs": [self._handoff(each, len(self._copies)) for each in agent.handoffs],
            "input_guardrails": [
                recorded_input_guardrail(each, f"{number}-{agent.name}", self._seam)
                for number, each in enumerate(agent.input_guardrails)
            ],
            "output_guardrails": [
                recorded_output_guardrail(each, f"{number}-{agent.name}", self._seam)
                for number, each in enumerate(agent.output_guardrails)
            ],
        }
        if isinstance(agent.model, Model):
            changed["model"] = RecordedModel(self._messages, agent.model)
            changed["model_settings"] = agent.model_settings
        copied = agent.clone(**changed)
        self._copies[id(agent)] = (agent, copied)
        return copied

    def _tool(self, tool: Tool) -> Tool:
        if isinstance(tool, FunctionTool):
            return recorded_tool(tool, self._settings, self._seam, self._messages)
        return tool

    def _handoff(self, target: Agent[Any] | Handoff[Any, Any], source: int) -> Handoff[Any, Any]:
        """Return a handoff to the copy of its agent. Its `on_handoff` is not called again in a replay. `source` is the
        number of the copy that hands over."""
        made = target if isinstance(target, Handoff) else handoff(target)
        number = 0

        async def invoke(context: RunContextWrapper[Any], written: str) -> Agent[Any]:
            nonlocal number
            number += 1
            key = f"handoff-{source}-{number}-{made.tool_name}"[:200]
            known = made._agent_ref() if made._agent_ref is not None else None
            if isinstance(known, Agent) and await self._seam.get(key) == known.name:
                return await self.of(known)
            token = is_nested.set(True)
            try:
                reached = await made.on_invoke_handoff(context, written)
            finally:
                is_nested.reset(token)
            await self._seam.put(key, reached.name)
            return await self.of(reached)

        copied = dataclasses.replace(made, on_invoke_handoff=invoke)
        copied._agent_ref = made._agent_ref
        return copied


def _targets(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """Yield the agents to which an agent hands over, as far as they are known before the handoff."""
    for each in agent.handoffs:
        target = each._agent_ref() if isinstance(each, Handoff) and each._agent_ref is not None else each
        if isinstance(target, Agent):
            yield target


def _check(agent: Agent[Any], tool: Tool) -> None:
    """Raise TypeError if a tool has effects on this server that cannot be recorded through the SDK, or if a tool needs
    approvals that it cannot ask for."""
    if isinstance(tool, HostedMCPTool):
        asks = tool.tool_config.get("require_approval", "always")
        if asks != "never" and tool.on_approval_request is None:
            raise TypeError(
                f"agent {agent.name!r}: the hosted MCP tool needs approvals; set require_approval to 'never', give it"
                " on_approval_request, or use an MCP server of the agent (mcp_servers)"
            )
        return
    if isinstance(tool, _HOSTED):
        return
    if not isinstance(tool, FunctionTool):
        raise TypeError(
            f"agent {agent.name!r}: a {type(tool).__name__} acts without being recorded, so a crash could repeat its"
            " effects; use function tools"
        )
    inner = getattr(tool, "_agent_instance", None)
    for each in agents_of(inner) if isinstance(inner, Agent) else ():
        for nested in each.tools:
            if getattr(nested, "needs_approval", False):
                raise TypeError(
                    f"agent {agent.name!r}: the tool {tool.name!r} is an agent whose tool {nested.name!r} needs an"
                    " approval, which it cannot ask for inside a tool; make the agent a handoff, or give the approval"
                    f" to {tool.name!r}"
                )
