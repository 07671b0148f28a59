"""Builds the inputs of a durable agent as they were when the run began. Pure."""

from typing import Any

from msgspec.structs import replace

from threadcast.agent_loop.history.request import build_request
from threadcast.agent_loop.ports import ModelTable
from threadcast.chat.owner_state import OwnerState
from threadcast.custom_agents.agent import Agent
from threadcast.custom_agents.context import Inputs
from threadcast.custom_agents.provider import CustomAgents, given
from threadcast.custom_agents.values import decoded
from threadcast.profiles.profile import ChatTools
from threadcast.providers.base import AGENTS
from threadcast_protocol.wire.errors import ModelFailed

__all__ = ["durable_agent", "inputs_of", "lacks_agent"]


def durable_agent(models: ModelTable, name: str) -> Agent | None:
    """Return the durable agent with this name, or None if this worker does not have it."""
    try:
        provider, known_as = models.resolve(f"{AGENTS}{name}")
    except ModelFailed:
        return None
    return provider.durable(known_as) if isinstance(provider, CustomAgents) else None


def lacks_agent(models: ModelTable, state: OwnerState) -> bool:
    """Return whether the open run must be continued by a durable agent that this worker does not have."""
    run = state.private.run
    if run is None or run.agent is None or run.agent.waits or state.runtime.waits_for is not None:
        return False
    return durable_agent(models, run.agent.name) is None


def inputs_of(state: OwnerState, tools: ChatTools) -> Inputs:
    """Return the inputs of the open run. Raises ValueError if the run has no durable agent."""
    run = state.private.run
    if run is None or run.agent is None:
        raise ValueError("no run of a durable agent is open")
    began_with = replace(
        state,
        path=state.path[: run.agent.path_length],
        draft=None,
        private=replace(
            state.private,
            asides=tuple(each for each in state.private.asides if (each.message.created_at or 0) <= run.started_at_ms),
        ),
    )
    request = build_request(began_with, tools, AGENTS.rstrip("/"), run.agent.name, with_tools=True)
    if request.run is None:  # impossible: a run is open
        raise ValueError("no run is open")
    state_text = run.agent.state
    fields = given(run.agent.name, request, request.run)
    declared = run.agent.tools  # tools that the agent itself has declared since the run began
    fields["tools"] = [tool for tool in request.tools if tool.name not in declared]
    return Inputs(**fields, state=None if state_text is None else decoded(state_text, Any))
