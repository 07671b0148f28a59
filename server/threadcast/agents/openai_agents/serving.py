"""Serves an agent of the OpenAI Agents SDK, and runs it inside a durable function."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from agents import Agent, ModelSettings, RunConfig, RunContextWrapper, RunHooks, Runner
from agents.exceptions import AgentsException, MaxTurnsExceeded, UserError
from agents.items import ToolCallOutputItem
from agents.mcp import MCPServer
from agents.models.interface import Model

from threadcast.agents.openai_agents.connections import Connections
from threadcast.agents.openai_agents.graph import Copies, agent_tools, agents_of
from threadcast.agents.openai_agents.guardrails import (
    TRIPPED,
    recorded_input_guardrail,
    recorded_output_guardrail,
    trip_text,
)
from threadcast.agents.openai_agents.history import input_of
from threadcast.agents.openai_agents.models import Messages, RecordedModel, RecordedProvider
from threadcast.agents.openai_agents.tools import Settings, ToolRaised
from threadcast.custom_agents.agent import Agent as ServedAgent
from threadcast.custom_agents.context import AgentContext
from threadcast.custom_agents.errors import StepFailed
from threadcast.custom_agents.seam import Seam
from threadcast.custom_agents.serving import serve_agent
from threadcast.tools.base import Policy, Retry
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["MAX_TURNS", "serve", "settings_of"]

MAX_TURNS = 10
"""The maximum responses of models in one run, the same as the SDK's own `DEFAULT_MAX_TURNS`."""

TEXT_MAX_CHARACTERS = 500
"""Maximum characters of the SDK's error that a run's error shows."""

_PARAMS = ("temperature", "top_p", "max_tokens", "frequency_penalty", "presence_penalty", "parallel_tool_calls")
"""The parameters of a chat that have the same name in the SDK's `ModelSettings`."""


def serve(
    agent: Agent[Any],
    *,
    name: str = "",
    title: str = "",
    description: str = "",
    policies: Mapping[str, Policy] | None = None,
    retry: Mapping[str, Retry] | None = None,
    tool_prefix: str = "",
    context: Callable[[AgentContext], Any] | None = None,
    run_config: RunConfig | None = None,
    max_turns: int | None = MAX_TURNS,
    tracing: bool = False,
) -> ServedAgent:
    """Serve an agent, with all agents that it hands over to, under the profile `name` (default: the agent's name).

    `policies` and `retry` map names of function tools to policies and retry classes. A tool without an entry has the
    policy `ask` if it has `needs_approval=True`, else `auto`; if `needs_approval` is a function, it decides for each
    call. `retry` is `once` by default. The names of the tools in the chat begin with `tool_prefix`, which keeps
    different tools of two agents apart if they have the same name. `context` makes the SDK's context object of a run,
    and is called again after each crash and pause; this function may be async. With `tracing`, the SDK sends traces to
    OpenAI, as it does by default; without `tracing`, it sends none.

    Raises:
        TypeError: the name is invalid; a tool cannot be recorded; two different tools have the same name; or `policies`
            or `retry` contains an unknown tool.
    """
    found = agents_of(agent)
    settings = Settings(policies or {}, retry or {}, tool_prefix)
    tools = agent_tools(found, settings)
    servers: dict[int, MCPServer] = {id(each): each for one in found for each in one.mcp_servers}
    base = run_config if run_config is not None else RunConfig()
    base = dataclasses.replace(base, tracing_disabled=base.tracing_disabled or not tracing)
    served = _Served(agent, found, settings, Connections(list(servers.values())), base, context, max_turns)
    return serve_agent(served.run, name=name or agent.name, title=title, description=description, tools=tools)


@dataclasses.dataclass(frozen=True)
class _Served:
    """The data that a served agent needs in each of its runs."""

    first: Agent[Any]
    agents: list[Agent[Any]]
    settings: Settings
    connections: Connections
    run_config: RunConfig
    context: Callable[[AgentContext], Any] | None
    max_turns: int | None

    async def run(self, ctx: AgentContext) -> None:
        """Run the agent. Raises ModelFailed: the run has failed, with a sentence for people."""
        inputs, last = input_of(await ctx.seam.with_attachments(ctx.messages))
        begins = next((each for each in self.agents if each.name == last), self.first)
        messages = Messages(ctx.seam, home=self.first.name, speaker=begins.name, prefix=self.settings.prefix)
        context = self.context(ctx) if self.context is not None else None
        context = await context if inspect.isawaitable(context) else context
        try:
            async with self.connections.open():
                copies = Copies(self.settings, ctx.seam, messages, context)
                result = await Runner.run(
                    await copies.of(begins),
                    inputs,
                    context=context,
                    max_turns=self.max_turns,
                    hooks=_Speaker(messages),
                    run_config=_recorded(self.run_config, ctx.params, ctx.seam, messages),
                )
        except ModelFailed:
            raise
        except Exception as wrong:
            raise _failure(wrong, self.max_turns) from wrong
        if result.new_items and isinstance(result.new_items[-1], ToolCallOutputItem):
            await messages.write_final(result.final_output)
        if result.interruptions:
            names = ", ".join(sorted({str(each.name) for each in result.interruptions}))
            raise ModelFailed("llm_error", f"The SDK asks for an approval that cannot be recorded: {names}.")


class _Speaker(RunHooks[Any]):
    """Tells the messages of a run which agent speaks."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages

    async def on_llm_start(self, context: RunContextWrapper[Any], agent: Any, *asked: Any) -> None:
        self._messages.speaker = agent.name


def settings_of(params: JsonObject) -> ModelSettings:
    """Return the model settings that come from the chat, its profile or the command."""
    found = {key: params[key] for key in _PARAMS if params.get(key) is not None}
    if params.get("reasoning_effort") is not None:
        found["reasoning"] = {"effort": params["reasoning_effort"]}
    return ModelSettings(**found)


def _recorded(given: RunConfig, params: JsonObject, seam: Seam, messages: Messages) -> RunConfig:
    """Return the configuration of one run, whose models and guardrails are recorded."""
    base = given.model_settings or ModelSettings()
    return dataclasses.replace(
        given,
        model=RecordedModel(messages, given.model) if isinstance(given.model, Model) else given.model,
        model_provider=RecordedProvider(messages, given.model_provider),
        model_settings=base.resolve(settings_of(params)),
        input_guardrails=[
            recorded_input_guardrail(each, f"{number}", seam)
            for number, each in enumerate(given.input_guardrails or ())
        ],
        output_guardrails=[
            recorded_output_guardrail(each, f"{number}", seam)
            for number, each in enumerate(given.output_guardrails or ())
        ],
    )


def _failure(wrong: Exception, max_turns: int | None) -> ModelFailed:
    """Return the error of a run, in a sentence for people."""
    if isinstance(wrong, TRIPPED):
        return ModelFailed("llm_error", trip_text(wrong))
    if isinstance(wrong, MaxTurnsExceeded):
        return ModelFailed("limit", f"The agent has asked its model {max_turns} times, its limit for one run.")
    cause = wrong.__cause__ if isinstance(wrong, UserError) and wrong.__cause__ is not None else wrong
    if isinstance(cause, StepFailed):
        return ModelFailed("llm_error", f"The model call failed ({cause.kind}).")
    if isinstance(cause, AgentsException | ToolRaised):
        return ModelFailed("llm_error", f"The agent failed: {cause}"[:TEXT_MAX_CHARACTERS])
    return ModelFailed("llm_error", f"The agent failed ({type(cause).__name__}).", detail=str(cause))
