"""Serves an agent of pydantic-ai, and runs it inside a durable function."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_ai import AbstractToolset, Agent, RunContext, UsageLimits
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, ReinjectSystemPrompt
from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior, UsageLimitExceeded, UserError
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.settings import ModelSettings

from threadcast.agents.pydantic_ai.history import history_of
from threadcast.agents.pydantic_ai.models import Messages, RecordedModel
from threadcast.agents.pydantic_ai.tools import RecordedToolset, Settings, ToolRaised, agent_tools
from threadcast.custom_agents.agent import Agent as ServedAgent
from threadcast.custom_agents.context import AgentContext
from threadcast.custom_agents.errors import StepFailed
from threadcast.custom_agents.serving import serve_agent
from threadcast.tools.base import Policy, Retry
from threadcast_protocol.wire.errors import ModelFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["serve", "settings_of"]

TEXT_MAX_CHARACTERS = 500
"""Maximum characters of the framework's error that a run's error shows."""

_PARAMS = ("temperature", "top_p", "max_tokens", "seed", "presence_penalty", "frequency_penalty", "parallel_tool_calls")
"""The parameters of a chat that have the same name in the framework's `ModelSettings`."""


def serve(
    agent: Agent[Any, Any] | WrapperAgent[Any, Any],
    *,
    name: str = "",
    title: str = "",
    description: str = "",
    policies: Mapping[str, Policy] | None = None,
    retry: Mapping[str, Retry] | None = None,
    tool_prefix: str = "",
    deps: Callable[[AgentContext], Any] | None = None,
    usage_limits: UsageLimits | None = None,
) -> ServedAgent:
    """Serve an agent under the profile `name` (default: the agent's name).

    `policies` and `retry` map names of the agent's tools to policies and retry classes. A tool without an entry has the
    policy `ask` if it has `requires_approval`, `client` if it is external, else `auto`. `retry` is `once` by default.
    The names of the tools in the chat begin with `tool_prefix`, which keeps different tools of two agents apart if they
    have the same name. `deps` makes the dependencies of a run, and is called again after each crash and pause; this
    function may be async. `usage_limits` apply to each run (by default the framework's limit of 50 requests).

    Raises:
        TypeError: the name is missing or invalid, or `policies` or `retry` contains an unknown tool.
    """
    settings = Settings(policies or {}, retry or {}, tool_prefix)
    tools = agent_tools(agent.toolsets, settings)
    served = _Served(agent, settings, frozenset(each.name for each in tools), deps, usage_limits)
    return serve_agent(served.run, name=name or agent.name or "", title=title, description=description, tools=tools)


@dataclass(frozen=True)
class _Served:
    """The data that a served agent needs in each of its runs. `known` are the names of the agent's tools in the
    chat."""

    agent: Agent[Any, Any] | WrapperAgent[Any, Any]
    settings: Settings
    known: frozenset[str]
    deps: Callable[[AgentContext], Any] | None
    usage_limits: UsageLimits | None

    async def run(self, ctx: AgentContext) -> None:
        """Run the agent. Raises ModelFailed: the run has failed, with a sentence for people."""
        prompt, history = history_of(await ctx.seam.with_attachments(ctx.messages), self.settings.prefix)
        deps = self.deps(ctx) if self.deps is not None else None
        deps = await deps if inspect.isawaitable(deps) else deps
        messages = Messages(ctx.seam, self.settings.prefix)
        try:
            result = await self.agent.run(
                prompt,
                message_history=history,
                deps=deps,
                model_settings=settings_of(ctx.params),
                usage_limits=self.usage_limits,
                run_id=ctx.run_id,
                conversation_id=ctx.chat_id,
                infer_name=False,
                capabilities=[_Recording(self, ctx, messages), ReinjectSystemPrompt()],
            )
        except ModelFailed:
            raise
        except Exception as wrong:  # boundary: the operator's agent
            raise _failure(wrong) from wrong
        await messages.report(result.all_messages())


class _Recording(AbstractCapability[Any]):
    """Puts the recorded model and the recorded toolset into one run."""

    def __init__(self, served: _Served, ctx: AgentContext, messages: Messages) -> None:
        super().__init__()
        self._served = served
        self._ctx = ctx
        self._messages = messages

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="outermost")

    def get_wrapper_model(self, model: Model) -> Model:
        return RecordedModel(model, self._messages)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        served = self._served
        return RecordedToolset(toolset, served.settings, self._ctx.seam, self._messages, known=served.known)

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Callable[..., Any]
    ) -> ModelResponse:
        self._messages.history = ctx.messages
        response: ModelResponse = await handler(request_context)
        return response


def settings_of(params: JsonObject) -> ModelSettings:
    """Return the model settings that come from the chat, its profile or the command."""
    found: ModelSettings = {}
    found.update({key: params[key] for key in _PARAMS if params.get(key) is not None})  # type: ignore[typeddict-item]  # the chat has checked the values
    if params.get("reasoning_effort") is not None:
        found["thinking"] = params["reasoning_effort"]
    return found


def _failure(wrong: Exception) -> ModelFailed:
    """Return the error of a run, in a sentence for people."""
    if isinstance(wrong, UsageLimitExceeded):
        return ModelFailed("limit", f"The agent has reached its limit: {wrong}"[:TEXT_MAX_CHARACTERS])
    if isinstance(wrong, StepFailed):
        return ModelFailed("llm_error", f"The model call failed ({wrong.kind}).")
    if isinstance(wrong, ModelHTTPError):
        return ModelFailed("llm_error", f"The model call failed ({type(wrong).__name__} {wrong.status_code}).")
    if isinstance(wrong, UnexpectedModelBehavior | UserError | ToolRaised):
        return ModelFailed("llm_error", f"The agent failed: {wrong}"[:TEXT_MAX_CHARACTERS])
    return ModelFailed("llm_error", f"The agent failed ({type(wrong).__name__}).", detail=str(wrong))
