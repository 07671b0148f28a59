"""The provider of the agents that operators have written: a round takes the place of a model call.

The agent loop calls this provider as it calls a model, so approvals, tools, limits, the queue and the recovery after a
crash are the same for both.
"""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

import structlog
from msgspec import structs

from threadcast.base.boundary import name_of, pass_on
from threadcast.custom_agents.agent import Agent
from threadcast.custom_agents.pieces import delta_of, kept_in
from threadcast.custom_agents.rounds import Round, RoundMessage
from threadcast.providers.base import AGENTS, Delta, Finished, ModelInfo, Request, RunInfo, ToolCallDelta
from threadcast_protocol.wire.errors import ModelFailed

__all__ = ["CustomAgents", "given"]

_log = structlog.get_logger()


class CustomAgents:
    """A `Provider` whose models are the agents, by their names."""

    name = AGENTS.rstrip("/")

    def __init__(self, agents: Iterable[Agent]) -> None:
        self._by_name = {each.name: each for each in agents}

    def prefills(self, model: str) -> bool:
        return False

    def samplers(self, model: str) -> frozenset[str]:
        return frozenset()

    def models(self) -> list[ModelInfo]:
        """Return []: clients choose an agent by its profile and not as a model, since the agent needs the profile's
        tools."""
        return []

    def durable(self, name: str) -> Agent | None:
        """Return the durable agent with this name, or None."""
        found = self._by_name.get(name)
        return found if found is not None and found.is_durable else None

    async def aclose(self) -> None:
        """Do nothing, since there is no connection."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Ask the agent. Raises ModelFailed if there is no such agent, if its code failed, or if it yielded something
        other than a piece."""
        agent = self._by_name.get(request.model)
        if agent is None:
            known = ", ".join(sorted(self._by_name)) or "none"
            raise ModelFailed("llm_error", f"This server has no agent {request.model!r}; known: {known}.")
        calls_count = 0
        try:
            async with aclosing(agent.pieces(_round(agent, request))) as pieces:
                async for piece in pieces:
                    delta = delta_of(piece, agent.name, calls_count)
                    calls_count += isinstance(delta, ToolCallDelta)
                    yield delta
        except ModelFailed:
            raise  # an agent may report its own failure
        except BaseException as wrong:  # boundary: the operator's agent
            pass_on(wrong)
            name = name_of(wrong)
            _log.warning("agent.failed", agent=agent.name, error=name, exc_info=wrong)
            raise ModelFailed("llm_error", f"The agent {agent.name!r} failed ({name}).", detail=str(wrong)) from wrong
        yield Finished("tool_calls" if calls_count else "stop")


def _round(agent: Agent, request: Request) -> Round:
    """Return the round for a request. Raises ModelFailed if the call belongs to no run, such as the call for a
    title."""
    run = request.run
    if run is None:
        raise ModelFailed("llm_error", f"The agent {agent.name!r} answers only in chats of its own profile.")
    return Round(**given(agent.name, request, run), number=run.round, shown=run.shown)


def given(agent: str, request: Request, run: RunInfo) -> dict[str, Any]:  # Any: the fields of `RunInputs`
    """Return the part of a run that an agent receives."""
    return {
        "chat_id": run.chat_id,
        "run_id": run.run_id,
        "messages": [
            RoundMessage(**structs.asdict(each), keep=kept_in(request.provider_data.get(each.message_id, []), agent))
            for each in request.messages
        ],
        "system": request.system,
        "tools": request.tools,
        "params": run.params,
        "context": run.context,
        "metadata": run.metadata,
        "principal": run.principal,
    }
