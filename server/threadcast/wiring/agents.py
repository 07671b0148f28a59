"""Builds the agents that are configured in the settings: `[agents.NAME]`."""

from threadcast.custom_agents.agent import Agent
from threadcast.settings import Settings
from threadcast.settings.agents import ConfiguredAgent
from threadcast.settings.values import revealed
from threadcast.wiring.tools import programs_user_in

__all__ = ["configured_agents"]


def configured_agents(settings: Settings, taken: list[Agent]) -> list[Agent]:
    """Return the configured agents. `taken` are the names of the agents in the operator's file.

    Raises:
        ValueError: an agent has a name that is taken, or needs an extra that is not installed.
    """
    names = {each.name.casefold() for each in taken}
    found: list[Agent] = []
    for name, wanted in settings.agents.items():
        if not wanted.enabled:
            continue
        if name.casefold() in names:
            raise ValueError(f"agents.{name}: another agent of server.app has this name (case does not matter)")
        names.add(name.casefold())
        try:
            found.append(_agent(name, wanted, settings))
        except (ImportError, TypeError) as wrong:
            raise ValueError(f"agents.{name}: {wrong}") from None
    return found


def _agent(name: str, wanted: ConfiguredAgent, settings: Settings) -> Agent:
    """Return the agent. The module of the agent is imported here, so that servers without such an agent do not import
    the module. Raises ImportError."""
    if wanted.kind == "acp":
        from threadcast.agents import acp

        return acp.serve(
            wanted.command,
            name=name,
            title=wanted.title,
            description=wanted.description,
            env=wanted.env,
            workspace=wanted.workspace or settings.store.data_path / "workspaces" / name,
            policies=dict(wanted.policies),
            mode=wanted.mode,
            model=wanted.model,
            files=wanted.files,
            idle_seconds=wanted.idle_seconds,
            silence_seconds=wanted.silence_seconds,
            user=programs_user_in(settings),
        )
    from threadcast.agents import ag_ui

    return ag_ui.serve(
        wanted.url,
        name=name,
        title=wanted.title,
        description=wanted.description,
        headers=revealed(wanted.headers),
        policies=dict(wanted.policies),
        silence_seconds=wanted.silence_seconds,
    )
