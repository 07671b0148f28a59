"""From settings to the furniture of the rooms: providers, tools, profiles, authenticator, embedded or given store.

Both halves of the house are put together from here, so that `serve`, `web` and `worker` offer the same models and
tools. It opens nothing but the store; what it returns is closed by who asked for it.
"""

from dataclasses import dataclass
from pathlib import Path

from protocol.principal import Principal
from server.actor.host import Rhythm
from server.actor.traces import Traces
from server.agent.place.profile import Profiles
from server.agent.reasons import Reasons
from server.api.auth import Authenticator, KnownToken, LocalAuthenticator, TokenAuthenticator
from server.api.endpoints import EndpointRule
from server.api.quotas import Quota, Quotas
from server.assembly.app_file import app_file_of
from server.assembly.endpoints import endpoints_of
from server.assembly.payloads import payload_types_of
from server.assembly.profiles import profiles_of, starter_models
from server.assembly.providers import check_model, check_models, providers_of
from server.assembly.store import open_store
from server.assembly.tools import mcp_hub_of, tools_of
from server.companions import Companion
from server.providers.registry import Providers
from server.redaction import Redactor, secrets_of
from server.settings import Settings
from server.store.port import Store
from server.telemetry import Metrics
from server.tools.http import HttpClient
from server.tools.mcp.hub import McpHub
from server.tools.registry import Tools

__all__ = [
    "Furniture",
    "authenticator_of",
    "furnish",
    "open_store",
    "quotas_of",
    "reasons_of",
    "rhythm_of",
    "traces_of",
]


@dataclass(frozen=True, slots=True)
class Furniture:
    """What actors and edge share."""

    providers: Providers
    tools: Tools
    profiles: Profiles
    endpoints: dict[str, EndpointRule]
    mcp: McpHub
    http: HttpClient
    companions: list[Companion]

    @property
    def forwards_authorization(self) -> bool:
        """Is there a tool that may ask for a caller's credentials?"""
        return any(tool.traits.forward_auth for tool in self.tools.values())


def furnish(settings: Settings) -> Furniture:
    """Providers, tools and profiles as configured. Raises ValueError naming what cannot be."""
    providers = providers_of(settings.models, with_demo=settings.has_demo)
    check_models(settings, providers)
    if settings.server.pages and not Path(settings.server.pages).is_dir():
        raise ValueError(f"server.pages: there is no directory {settings.server.pages!r}")
    app = app_file_of(settings.server.app)
    http = HttpClient()
    tools = tools_of(settings, app.tools, http)
    mcp = mcp_hub_of(settings, tools)
    configured = profiles_of(
        settings,
        tools,
        payload_types=payload_types_of(settings, app.payload_types),
        sections=app.sections,
        welcomes=app.welcomes,
    )
    for path, model in starter_models(configured.values()):
        check_model(providers, path, model)
    profiles = Profiles(configured, tools, settings.models.default, providers.window_tokens, mcp, named=providers.named)
    return Furniture(providers, tools, profiles, endpoints_of(settings, profiles), mcp, http, app.companions)


def authenticator_of(settings: Settings) -> Authenticator:
    """Bearer tokens when some are configured, else the one local caller."""
    tokens = [
        KnownToken(
            token.sha256,
            Principal(token.id, permissions=tuple(sorted(token.permissions)), roles=tuple(sorted(token.roles))),
        )
        for token in settings.auth.tokens
    ]
    return TokenAuthenticator(tokens) if tokens else LocalAuthenticator()


def rhythm_of(settings: Settings) -> Rhythm:
    limits = settings.limits
    return Rhythm(
        lease_seconds=limits.lease_seconds,
        beat_seconds=limits.beat_seconds,
        sweep_seconds=limits.sweep_seconds,
        max_chats=limits.worker_max_chats,
        drain_seconds=limits.drain_seconds,
    )


def traces_of(settings: Settings, store: Store, metrics: Metrics) -> Traces | None:
    """Where workers lay traces down; None when they are switched off."""
    ttl_seconds = settings.limits.trace_hours * 3_600
    if not ttl_seconds:
        return None
    return Traces(store, metrics, Redactor(secrets_of(settings)), ttl_seconds=ttl_seconds)


def reasons_of(settings: Settings) -> Reasons:
    """Return what decides which words of a provider people are shown after a failed model call."""
    return Reasons(Redactor(secrets_of(settings)), is_shown=settings.models.show_reasons)


def quotas_of(settings: Settings, store: Store, metrics: Metrics) -> Quotas:
    """How many turns each caller may take."""
    limits = settings.limits
    default = Quota(limits.turns_per_hour, limits.turns_per_day)
    own = {
        token.id: Quota(
            default.per_hour if token.turns_per_hour is None else token.turns_per_hour,
            default.per_day if token.turns_per_day is None else token.turns_per_day,
        )
        for token in settings.auth.tokens
    }
    return Quotas(store, metrics, default, own)
