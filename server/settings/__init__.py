"""Every knob of the server, once: its unit, its default, and when to change it.

Frozen structs, one for each section of `threadcast.toml`. Their defaults work on a laptop. Where values come from
(file, environment, flags) is `sources.py`'s business; rooms are handed the values they need and none reads the
environment. A rule that joins several values stands in the section's `__post_init__`, so that no settings exist that
break it.
"""

from protocol.loopback import is_loopback
from protocol.tool_names import SERVER_NAME
from server.settings.agent import Action, Binding, Profile, ReplyGuard, Scope, Starter, Tool
from server.settings.limits import Limits
from server.settings.mcp import Mcp
from server.settings.models import BASE_URLS, DEMO_PROVIDER, OPENAI_API, Model, Models, Provider
from server.settings.payloads import Payload
from server.settings.serving import Auth, Endpoint, OneShotPath, Server, Store, Token
from server.settings.values import Name, Secret, Section

__all__ = [
    "BASE_URLS",
    "DEMO_PROVIDER",
    "OPENAI_API",
    "Action",
    "Auth",
    "Binding",
    "Endpoint",
    "Limits",
    "Mcp",
    "Model",
    "Models",
    "Payload",
    "Profile",
    "Provider",
    "ReplyGuard",
    "Scope",
    "Secret",
    "Server",
    "Settings",
    "Starter",
    "Store",
    "Token",
    "Tool",
]


class Settings(Section, frozen=True):
    """All of it, as `threadcast.toml` holds it."""

    server: Server = Server()
    store: Store = Store()
    auth: Auth = Auth()
    models: Models = Models()
    profiles: dict[Name, Profile] = {}
    endpoints: dict[OneShotPath, Endpoint] = {}
    payloads: dict[Name, Payload] = {}
    tools: dict[Name, Tool] = {}
    mcp: dict[Name, Mcp] = {}
    limits: Limits = Limits()

    @property
    def has_demo(self) -> bool:
        """Return whether demo models and tools are offered (`models.demo`)."""
        models, profiles = self.models, self.profiles.values()
        if models.demo is not None:
            return models.demo
        named = [models.default, models.title, models.summarizer, *models.fallback]
        named += [model for each in profiles for model in (each.model, each.summarizer or "", *(each.fallback or []))]
        is_real = any(provider.kind != "script" for provider in models.providers.values())
        return not is_real or any(model.startswith(f"{DEMO_PROVIDER}/") for model in named)

    def __post_init__(self) -> None:
        for name in self.mcp:
            if not SERVER_NAME.fullmatch(name):
                raise ValueError(
                    f"mcp: {name!r} cannot be the name of an MCP server, since its tools' names begin with it; use up "
                    "to 24 letters, digits, - and single _ between them"
                )
        if not self.auth.tokens and not is_loopback(self.server.host):
            raise ValueError(
                f"server.host = {self.server.host!r} would let everybody in who can reach this machine, since no "
                "auth.tokens are set. Make a token with `threadcast token` and put its lines into threadcast.toml, "
                "or listen on 127.0.0.1"
            )
