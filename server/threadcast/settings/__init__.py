"""All settings of the server, each with its unit, its default, and a line that says when to change it.

Each section of `threadcast.toml` is a frozen struct. The defaults work on a laptop. `sources.py` reads the file, the
environment and the flags; other packages receive the values they need and never read the environment. A section checks
the combination of its values in `__post_init__`, so that invalid settings cannot exist.
"""

from threadcast.settings.agent import Action, Binding, Profile, ReplyGuard, Scope, Starter, Tool, ToolBinding
from threadcast.settings.agents import ConfiguredAgent
from threadcast.settings.approvals import Approvals
from threadcast.settings.doors import Doors
from threadcast.settings.limits import Limits
from threadcast.settings.mcp import Mcp
from threadcast.settings.models import BASE_URLS, DEMO_PROVIDER, OPENAI_API, Model, Models, Provider
from threadcast.settings.payloads import Payload
from threadcast.settings.serving import Auth, Endpoint, OneShotPath, Server, Store, Token
from threadcast.settings.values import Name, Secret, Section
from threadcast_protocol.wire.loopback import is_loopback
from threadcast_protocol.wire.tool_names import SERVER_NAME

__all__ = [
    "BASE_URLS",
    "DEMO_PROVIDER",
    "OPENAI_API",
    "Action",
    "Approvals",
    "Auth",
    "Binding",
    "ConfiguredAgent",
    "Doors",
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
    "ToolBinding",
]


class Settings(Section, frozen=True):
    """All settings, in the structure of `threadcast.toml`."""

    server: Server = Server()
    store: Store = Store()
    auth: Auth = Auth()
    models: Models = Models()
    profiles: dict[Name, Profile] = {}
    endpoints: dict[OneShotPath, Endpoint] = {}
    doors: Doors = Doors()
    payloads: dict[Name, Payload] = {}
    tools: dict[Name, Tool] = {}
    mcp: dict[Name, Mcp] = {}
    agents: dict[Name, ConfiguredAgent] = {}
    approvals: Approvals = Approvals()
    limits: Limits = Limits()

    @property
    def requires_input_hash(self) -> bool:
        """Return whether an approval must have an `input_hash` (`approvals.require_input_hash`)."""
        wanted = self.approvals.require_input_hash
        return bool(self.auth.tokens) if wanted is None else wanted

    @property
    def has_demo(self) -> bool:
        """Return whether the server offers the demo models and tools (`models.demo`)."""
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
        everybody = next((origin for origin in self.server.cors_origins if origin in ("*", "null")), None)
        if not self.auth.tokens and everybody is not None:
            raise ValueError(
                f"server.cors_origins: {everybody!r} would let every web page that a user of this machine visits read "
                "and steer all chats, since no auth.tokens are set. Make a token with `threadcast token`, or name the "
                "origins"
            )
        if not self.auth.tokens and not is_loopback(self.server.host):
            raise ValueError(
                f"server.host = {self.server.host!r} would give access to anyone who can reach this machine, since no "
                "auth.tokens are set. Make a token with `threadcast token` and put its lines into threadcast.toml, "
                "or listen on 127.0.0.1"
            )
