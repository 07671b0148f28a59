"""The components that web processes and workers share: providers, tools and profiles, built from the settings.

`serve`, `web` and `worker` build the same components, so they offer the same models and tools. `build_components` opens
nothing. The caller enters the components that are context managers.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from threadcast.chat.approval_rules import ApprovalRules
from threadcast.companions import Companion
from threadcast.profiles.endpoint_rules import EndpointRule
from threadcast.profiles.profile import Profiles
from threadcast.providers.registry import Providers
from threadcast.settings import Settings
from threadcast.tools.http import HttpClient
from threadcast.tools.mcp.hub import McpHub
from threadcast.tools.registry import Tools
from threadcast.wiring.agents import configured_agents
from threadcast.wiring.app_file import app_file_of
from threadcast.wiring.endpoints import endpoints_of
from threadcast.wiring.payloads import payload_types_of
from threadcast.wiring.profiles import profiles_of, starter_models
from threadcast.wiring.providers import check_model, check_models, providers_of
from threadcast.wiring.tools import mcp_hub_of, operated_of_agent, tools_of, untrusted_of

__all__ = ["Components", "build_components"]


@dataclass(frozen=True, slots=True)
class Components:
    """The components that actors and the HTTP edge share."""

    providers: Providers
    tools: Tools
    profiles: Profiles
    endpoints: dict[str, EndpointRule]
    mcp: McpHub
    http: HttpClient
    companions: list[Companion]

    @property
    def forwards_authorization(self) -> bool:
        """Whether a tool may ask for a caller's credentials."""
        return any(tool.traits.forward_auth for tool in self.tools.values())


def build_components(settings: Settings) -> Components:
    """Build providers, tools and profiles as configured. Raises ValueError; the message names the invalid setting."""
    app = app_file_of(settings.server.app)
    configured_ones = configured_agents(settings, app.agents)
    app.agents.extend(configured_ones)
    app.tools.extend(tool for each in configured_ones for tool in each.own_tools)
    providers = providers_of(settings.models, with_demo=settings.has_demo, agents=app.agents)
    check_models(settings, providers)
    if settings.server.pages and not Path(settings.server.pages).is_dir():
        raise ValueError(f"server.pages: there is no directory {settings.server.pages!r}")
    http = HttpClient()
    tools = tools_of(settings, app.tools, http)
    mcp = mcp_hub_of(settings, tools)
    configured = profiles_of(
        settings,
        tools,
        payload_types=payload_types_of(settings, app.payload_types),
        sections=app.sections,
        welcomes=app.welcomes,
        agents=app.agents,
    )
    for path, model in starter_models(configured.values()):
        check_model(providers, path, model)
    rules = ApprovalRules(requires_input_hash=settings.requires_input_hash, untrusted=untrusted_of(settings, tools))
    profiles = Profiles(
        configured,
        tools,
        settings.models.default,
        providers.window_tokens,
        mcp,
        named=providers.named,
        rules=rules,
        operated=partial(operated_of_agent, settings),
    )
    return Components(providers, tools, profiles, endpoints_of(settings, profiles), mcp, http, app.companions)
