"""From settings to the furniture of the rooms: providers, tools, profiles, authenticator, embedded or given store.

Both halves of the house are put together from here, so that `serve`, `web` and `worker` offer the same models and
tools. It opens nothing but the store; what it returns is closed by who asked for it.
"""

import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec

import anyio
import structlog

from protocol.errors import BadRequest
from protocol.messages import JsonObject
from protocol.params import MAX_ROUNDS, PARAMS
from protocol.principal import Principal
from protocol.thread import ALWAYS_PRESENT, read_patch
from protocol.tool_names import mcp_server_of
from server.actor.host import Rhythm
from server.agent.profile import DEFAULT_IDENTITY, DEFAULT_PROFILE, Profile, Profiles
from server.api.auth import Authenticator, KnownToken, LocalAuthenticator, TokenAuthenticator
from server.providers.base import ModelInfo
from server.providers.demo import Demo
from server.providers.openai_chat import OpenAIChat
from server.providers.registry import Providers
from server.settings import Profile as ProfileSettings
from server.settings import Provider as ProviderSettings
from server.settings import Settings
from server.settings import Tool as ToolSettings
from server.store.embedded import EmbeddedStore
from server.store.redis_store import RedisStore
from server.tools.base import DEFAULT_TIMEOUT_SECONDS, Policy, Retry, Tool, ToolContext, ToolOutput
from server.tools.client import CLIENT_TIMEOUT_SECONDS, ClientTool
from server.tools.demo import DEMO_TOOLS
from server.tools.mcp.base import ServerSpec
from server.tools.mcp.hub import McpHub
from server.tools.python import PythonTool
from server.tools.registry import Tools, load_module

__all__ = ["Furniture", "authenticator_of", "furnish", "open_store", "rhythm_of"]

_log = structlog.get_logger()

POLICIES_CARRIED_OUT = ("auto", "ask", "deny", "client")


@dataclass(frozen=True, slots=True)
class Furniture:
    """What actors and edge share."""

    providers: Providers
    tools: Tools
    profiles: Profiles
    mcp: McpHub


def furnish(settings: Settings) -> Furniture:
    """Providers, tools and profiles as configured. Raises ValueError naming what cannot be."""
    providers = Providers(
        [
            *(_openai_chat(name, wanted) for name, wanted in settings.models.providers.items()),
            Demo(),
        ]
    )
    own = _tools_of(settings.server.app) if settings.server.app else []
    theirs = frozenset(name for name in settings.tools if mcp_server_of(name) in settings.mcp)
    tools = Tools(_operated([*DEMO_TOOLS, *own], settings.tools, settings.limits.tool_timeout_seconds, theirs))
    profiles = {
        name: Profile(
            name=name,
            title=wanted.title or name,
            description=wanted.description,
            system_prompt=DEFAULT_IDENTITY if wanted.system_prompt is None else wanted.system_prompt,
            tools=wanted.tools,
            model=wanted.model,
            params=_profile_params(name, wanted, settings.limits.max_rounds),
        )
        for name, wanted in settings.profiles.items()
    }
    limit_only = _profile_params(DEFAULT_PROFILE, ProfileSettings(), settings.limits.max_rounds)
    profiles.setdefault(DEFAULT_PROFILE, Profile(name=DEFAULT_PROFILE, params=limit_only))
    mcp = _mcp_hub(settings, tools)
    windows = {name: info.context_tokens for name, info in providers.model_infos().items()}
    return Furniture(providers, tools, Profiles(profiles, tools, settings.models.default, windows, mcp), mcp)


def _profile_params(name: str, wanted: ProfileSettings, max_rounds: int) -> JsonObject:
    """A profile's defaults of thread parameters. Raises ValueError: a key or value that cannot be one."""
    fixed = wanted.params.keys() & ALWAYS_PRESENT or wanted.params.keys() - set(PARAMS)
    if fixed:
        raise ValueError(f"profiles.{name}.params.{min(fixed)}: not a parameter that a profile can set")
    try:
        params = read_patch(wanted.params)
    except BadRequest as wrong:
        raise ValueError(f"profiles.{name}.params.{wrong.message}") from None
    if wanted.max_rounds or max_rounds != MAX_ROUNDS:
        params.setdefault("max_rounds", wanted.max_rounds or max_rounds)
    return params


def _tools_of(path: str) -> list[PythonTool]:
    """The tools of the operator's file; what is wrong with it is said in Python's own words, without our frames."""
    try:
        return load_module(path)
    except ValueError:
        raise  # already a sentence
    except Exception as wrong:  # the boundary of a foreign file: it may raise anything
        raise ValueError(f"--app {path}: {''.join(traceback.format_exception_only(wrong)).strip()}") from wrong


def _openai_chat(name: str, wanted: ProviderSettings) -> OpenAIChat:
    models = [
        ModelInfo(
            name=model.name,
            context_tokens=model.context_tokens,
            supports_tools=model.supports_tools,
            supports_images=model.supports_images,
            supports_audio=model.supports_audio,
            supports_files=model.supports_files,
        )
        for model in wanted.models
    ]
    return OpenAIChat(
        name,
        base_url=wanted.base_url,
        api_key=wanted.api_key.reveal() if wanted.api_key is not None else None,
        models=models,
        connect_timeout_seconds=wanted.connect_timeout_seconds,
        idle_timeout_seconds=wanted.idle_timeout_seconds,
    )


class _OperatedTool:
    """A tool under the operator's table: its own word wherever the table says nothing."""

    def __init__(self, tool: Tool, wanted: ToolSettings, default_timeout_seconds: float) -> None:
        self._tool = tool
        self.name = tool.name
        self.description = tool.description
        self.input_schema: JsonObject = tool.input_schema
        self.policy: Policy = wanted.policy or tool.policy
        self.retry: Retry = wanted.retry or tool.retry
        own = None if tool.timeout_seconds == DEFAULT_TIMEOUT_SECONDS else tool.timeout_seconds
        usual = CLIENT_TIMEOUT_SECONDS if self.policy == "client" else default_timeout_seconds
        self.timeout_seconds = wanted.timeout_seconds or own or usual
        self.category = tool.category
        self.source = tool.source
        self.hide_input = tool.hide_input
        self.label_arg = tool.label_arg

    def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        return self._tool.run(arguments, context)


def _mcp_hub(settings: Settings, own: Tools) -> McpHub:
    """The configured MCP servers, not yet connected.

    Raises:
        ValueError: the extra is missing, or the table of tools says what cannot be.
    """
    wanted = {name: server for name, server in settings.mcp.items() if server.enabled}
    if wanted and find_spec("mcp") is None:
        raise ValueError(
            f"mcp.{min(wanted)}: MCP servers need the extra `mcp`; install it with `pip install 'threadcast[mcp]'`, or "
            f"set mcp.{min(wanted)}.enabled = false"
        )
    default_seconds = settings.limits.tool_timeout_seconds
    specs = [
        ServerSpec(
            name=name,
            command=server.command,
            args=tuple(server.args),
            env={key: value.reveal() for key, value in server.env.items()},
            url=server.url,
            headers={key: value.reveal() for key, value in server.headers.items()},
            policy=server.policy,
            timeout_seconds=server.timeout_seconds or default_seconds,
        )
        for name, server in wanted.items()
    ]
    for name, said in settings.tools.items():
        if mcp_server_of(name) in settings.mcp and said.policy not in (None, "auto", "ask", "deny"):
            raise ValueError(
                f"tools.{name}: the policy {said.policy!r} is not there for MCP tools; use auto, ask, deny"
            )

    def operated(tool: Tool) -> Tool | None:
        said = settings.tools.get(tool.name, ToolSettings())
        if tool.name in own:
            _log.warning("mcp.tool_left_out", name=tool.name, detail="a tool of our own has this name")
            return None
        return _OperatedTool(tool, said, tool.timeout_seconds) if said.enabled else None

    return McpHub(specs, operated)


def _operated(
    tools: list[Tool], table: dict[str, ToolSettings], default_timeout_seconds: float, theirs: frozenset[str]
) -> list[Tool]:
    """`theirs`: names in the table that are tools of MCP servers, known only when those are connected."""
    unknown = table.keys() - {tool.name for tool in tools} - theirs
    for name in sorted(unknown):
        wanted_tool = table[name]
        if wanted_tool.policy != "client" or not wanted_tool.description:
            known = ", ".join(tool.name for tool in tools)
            raise ValueError(
                f"tools.{name}: there is no such tool; known: {known}. "
                'A tool that clients carry out needs policy = "client" and a description'
            )
        tools = [*tools, ClientTool(name, wanted_tool.description, wanted_tool.input_schema or None)]
    wanted = {tool.name: table.get(tool.name, ToolSettings()) for tool in tools}
    kept: list[Tool] = [
        _OperatedTool(tool, wanted[tool.name], default_timeout_seconds) for tool in tools if wanted[tool.name].enabled
    ]
    for tool in kept:
        if tool.policy not in POLICIES_CARRIED_OUT:  # running it unasked would be worse than not starting
            raise ValueError(
                f"tool {tool.name}: the policy {tool.policy!r} is not there yet; use auto, ask, deny or client"
            )
    return kept


def authenticator_of(settings: Settings) -> Authenticator:
    """Bearer tokens when some are configured, else the one local caller."""
    tokens = [
        KnownToken(token.sha256, Principal(token.id, frozenset(token.permissions))) for token in settings.auth.tokens
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


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[tuple[RedisStore, Callable[[str], None]]]:
    """The configured store, or a private one that is started and kept running; and how to announce where we listen.

    Raises:
        Conflict: somebody serves this data directory already.
        Unavailable: no store can be reached or started; the sentence names the ways out.
    """
    if settings.store.url is not None:
        async with RedisStore(settings.store.url.reveal()) as store:
            yield store, _announce_nowhere
        return
    async with (
        EmbeddedStore(settings.store.data_path, memory=settings.store.memory) as embedded,
        anyio.create_task_group() as tasks,
        RedisStore(embedded.url) as store,
    ):
        tasks.start_soon(embedded.supervise)
        try:
            yield store, embedded.announce
        finally:
            tasks.cancel_scope.cancel()


def _announce_nowhere(_: str) -> None:
    return None
