"""From settings to the furniture of the rooms: providers, tools, profiles, authenticator, embedded or given store.

Both halves of the house are put together from here, so that `serve`, `web` and `worker` offer the same models and
tools. It opens nothing but the store; what it returns is closed by who asked for it.
"""

from dataclasses import dataclass

from protocol.principal import Principal
from server.actor.host import Rhythm
from server.agent.profile import Profiles
from server.api.auth import Authenticator, KnownToken, LocalAuthenticator, TokenAuthenticator
from server.assembly.profiles import profiles_of
from server.assembly.providers import providers_of
from server.assembly.store import open_store
from server.assembly.tools import mcp_hub_of, tools_of
from server.providers.registry import Providers
from server.settings import Settings
from server.tools.http import HttpClient
from server.tools.mcp.hub import McpHub
from server.tools.registry import Tools

__all__ = ["Furniture", "authenticator_of", "furnish", "open_store", "rhythm_of"]


@dataclass(frozen=True, slots=True)
class Furniture:
    """What actors and edge share."""

    providers: Providers
    tools: Tools
    profiles: Profiles
    mcp: McpHub
    http: HttpClient

    @property
    def forwards_authorization(self) -> bool:
        """Is there a tool that may ask for a caller's credentials?"""
        return any(tool.traits.forward_auth for tool in self.tools.values())


def furnish(settings: Settings) -> Furniture:
    """Providers, tools and profiles as configured. Raises ValueError naming what cannot be."""
    providers = providers_of(settings.models)
    http = HttpClient()
    tools = tools_of(settings, http)
    mcp = mcp_hub_of(settings, tools)
    windows = {name: info.context_tokens for name, info in providers.model_infos().items()}
    profiles = Profiles(profiles_of(settings), tools, settings.models.default, windows, mcp)
    return Furniture(providers, tools, profiles, mcp, http)


def authenticator_of(settings: Settings) -> Authenticator:
    """Bearer tokens when some are configured, else the one local caller."""
    tokens = [
        KnownToken(token.sha256, Principal(token.id, token.permissions, token.roles)) for token in settings.auth.tokens
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
