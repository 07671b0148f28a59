"""A profile is a named bundle of identity, tools, model and limits. A chat's profile is chosen by the thread's `mode`.

The operator configures profiles. `Profiles` finds the profile of a chat, applies the changes of the chat's scope, and
joins the result with the tool registry into `ChatTools`, which the plan uses. An unknown mode means the default
profile, and an unknown scope means the nearest enclosing scope. The offered tools follow from the configuration, the
chat and the principal that started the run; a request body can choose a scope, but never gives rights (CTX-7).

Modes are matched without regard to case, and a profile may have aliases, because older clients write `AGENT` or
`NO_TOOLS`.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from threadcast.chat.approval_rules import ApprovalRules
from threadcast.chat.owner_state import OwnerState
from threadcast.chat.params import effective
from threadcast.chat.scopes import TOP, Scope, is_within, nearest, prefixes
from threadcast.profiles.context import declared_tools, payloads_of, wanted_scope
from threadcast.profiles.payload_types import Action, PayloadType
from threadcast.profiles.prompt import STANDARD_SECTIONS, Section, sections_at
from threadcast.profiles.reply_guard import ReplyGuard
from threadcast.profiles.welcome import Starter
from threadcast.providers.base import ToolSpec
from threadcast.settings.agent import CONTEXT_WARN_RATIO
from threadcast.tools.agent_tool import AgentTool, DeclaredAgentTool
from threadcast.tools.base import Tool
from threadcast.tools.bound import BoundTool
from threadcast.tools.client import ClientTool
from threadcast.tools.payloads import GET_PAYLOAD
from threadcast.tools.traits import Binding
from threadcast_protocol.wire.commands import DeclaredTool
from threadcast_protocol.wire.decoders import decoder
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.tool_names import covers, mcp_server_of

__all__ = ["DEFAULT_PROFILE", "ChatTools", "Profile", "Profiles", "ScopeTable", "ToolSource", "is_for"]

DEFAULT_PROFILE = "agent"

_T = TypeVar("_T")

_NO_RULES = ApprovalRules()

Windows: TypeAlias = Callable[[str], int | None]
"""Returns the size of a model's window in tokens by the model's full name; None if the size is unknown."""

DEFAULT_IDENTITY = (
    "You are a helpful assistant. Use the tools you are offered when they help; say plainly when you do not know."
)


class ScopeTable(msgspec.Struct, frozen=True, kw_only=True):
    """The values in which a scope differs from its profile. They apply in the scope and in the scopes inside it
    (CTX-4). None: no difference.

    `tools` are offered in this scope and inside it, and elsewhere only if the profile names them, too. `payload_types`
    and `actions` are added to the payload types and actions of the profile.
    """

    system_prompt: str | None = None
    guidelines: str | None = None
    custom_instructions: str | None = None
    highlight: list[str] | None = None
    tools: list[str] = []
    payload_types: dict[str, PayloadType] = {}
    actions: dict[str, Action] = {}
    greeting: str | None = None
    starters: list[Starter] | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle of settings for chats. `tools` are the names of the offered tools; `mcp__NAME__*` stands for all tools
    of an MCP server, and None for all tools. `model` is '' for the server's default. `params` are defaults of thread
    parameters, which a thread may override (SET-1). `highlight` lists keys of the request context, which may be dotted
    (CTX-3). `scopes` are the profile's scopes by their paths.

    `aliases` are other names of the profile in `mode`, in any case. Clients show `greeting` and `starters` before the
    first message; prompts do not contain them. If `starters` is None, clients offer their own starters.

    `fallback` lists the models that answer, in this order, if the chosen model is down. `summarizer` is the model that
    shortens long histories; if it is '', the oldest messages are left out instead. `delegate_to` lists the profiles
    that sub-chats may have, None for all. `allows_autonomous`: the thread parameter `autonomous_no_confirm` has an
    effect (PROTOCOL §11). If `model` is an agent of the operator's file (`agents/NAME`), this agent answers, whatever
    model a chat names; `is_durable` says that the agent is a durable function.
    """

    name: str
    title: str = "Agent"
    aliases: list[str] = []
    description: str = ""
    greeting: str = ""
    starters: list[Starter] | None = None
    system_prompt: str = DEFAULT_IDENTITY
    guidelines: str = ""
    custom_instructions: str = ""
    highlight: list[str] = []
    sections: tuple[Section, ...] = STANDARD_SECTIONS
    tools: list[str] | None = None
    delegate_to: list[str] | None = None
    model: str = ""
    params: JsonObject = {}
    payload_types: dict[str, PayloadType] = {}
    actions: dict[str, Action] = {}
    scopes: dict[Scope, ScopeTable] = {}
    reply_guard: ReplyGuard = ReplyGuard()
    fallback: list[str] = []
    summarizer: str = ""
    context_warn_ratio: float = CONTEXT_WARN_RATIO
    bindings: Mapping[str, tuple[Binding, ...]] = {}
    allows_autonomous: bool = False
    is_durable: bool = False

    def at(self, scope: Scope) -> "Profile":
        """Return the profile with the changes of a scope. Each text comes from the most specific enclosing scope that
        sets the text, payload types and actions come from all enclosing scopes, and only sections that apply in the
        scope are kept. `tools` and `scopes` do not change, because `offers` reads them."""
        said = self._tables(scope)
        if not said and not any(each.scope for each in self.sections):
            return self
        return replace(
            self,
            sections=sections_at(scope, self.sections),
            system_prompt=_latest(self.system_prompt, (table.system_prompt for table in said)),
            guidelines=_latest(self.guidelines, (table.guidelines for table in said)),
            custom_instructions=_latest(self.custom_instructions, (table.custom_instructions for table in said)),
            highlight=_latest(self.highlight, (table.highlight for table in said)),
            greeting=_latest(self.greeting, (table.greeting for table in said)),
            starters=_latest(self.starters, (table.starters for table in said)),
            payload_types={**self.payload_types, **{k: v for table in said for k, v in table.payload_types.items()}},
            actions={**self.actions, **{k: v for table in said for k, v in table.actions.items()}},
        )

    def offers(self, tool: Tool, scope: Scope) -> bool:
        """Return whether `tool` is offered in a scope (TOOL-5). If this scope or an enclosing scope names the tool, the
        tool's own scopes are ignored."""
        name, traits = tool.name, tool.traits
        if any(covers(table.tools, name) for table in self._tables(scope)):
            return True
        if traits.scopes and not any(is_within(scope, wanted) for wanted in traits.scopes):
            return False
        if self.tools is not None:
            return covers(self.tools, name)
        return not any(covers(table.tools, name) for table in self.scopes.values())

    def _tables(self, scope: Scope) -> list[ScopeTable]:
        """Return the tables of this scope and of the enclosing scopes, the outermost scope first."""
        return [self.scopes[wanted] for wanted in prefixes(scope) if wanted in self.scopes] if self.scopes else []


def _mode_of(state: OwnerState) -> str:
    run = state.private.run
    return (run.params.get("mode") if run is not None else None) or state.thread.mode


def is_for(tool: Tool, roles: Container[str]) -> bool:
    """Return whether a principal with these roles may be offered the tool."""
    return not tool.traits.required_role or tool.traits.required_role in roles


def _latest(own: _T, others: Iterable[_T | None]) -> _T:
    """Return the last value of `others` that is not None; `own` if there is none."""
    for other in others:
        own = own if other is None else other
    return own


class ToolSource(Protocol):
    """A source of tools that may change while the server runs."""

    def tools(self) -> Mapping[str, Tool]:
        """Return the tools that can be called now, by name. This method is called at each step of a run."""


class ChatTools:
    """The tools that one chat is offered, in stable order, and the profile in the chat's scope. `windows` returns the
    size of a model's window. `mcp_servers` are the MCP servers whose tools are offered; None means all servers. `roles`
    are the roles of the principal that started the run. `has_payloads`: the active path has payloads. `declared` are
    the tools that the sender of the question carries out, and `of_agent` are the tools that the agent of the run has
    declared; a tool of the server with the same name takes precedence. `unknown_mode` is the mode of the chat if no
    profile has this name and `profile` is therefore the default profile; otherwise ''. `rules` are the operator's rules
    about approvals."""

    def __init__(
        self,
        profile: Profile,
        tools: Mapping[str, Tool],
        disabled: frozenset[str],
        default_model: str,
        windows: Windows | None = None,
        mcp_servers: Container[str] | None = None,
        *,
        scope: Scope = TOP,
        roles: Collection[str] = (),
        has_payloads: bool = False,
        declared: Mapping[str, DeclaredTool] = MappingProxyType({}),
        of_agent: Iterable[Tool] = (),
        unknown_mode: str = "",
        rules: ApprovalRules = _NO_RULES,
    ) -> None:
        self.profile = profile.at(scope)
        self.rules = rules
        self.unknown_mode = unknown_mode
        self.scope = scope
        self._all = tools
        committing = {tool.traits.commit_tool for tool in tools.values() if tool.policy == "preview"}
        has_payloads = has_payloads or bool(self.profile.payload_types)
        self._offered = {
            name: BoundTool(tool, profile.bindings[name]) if name in profile.bindings else tool
            for name, tool in tools.items()
            if not covers(disabled, name)
            and name not in committing
            and is_for(tool, roles)
            and (has_payloads if name == GET_PAYLOAD else profile.offers(tool, scope))
            and (mcp_servers is None or (server := mcp_server_of(name)) is None or server in mcp_servers)
        }
        self._offered |= {
            name: ClientTool(name, each.description, each.input_schema)
            for name, each in declared.items()
            if name not in tools and not covers(disabled, name)
        }
        self._offered |= {
            tool.name: tool for tool in of_agent if tool.name not in tools and not covers(disabled, tool.name)
        }
        self._windows = windows
        self.default_model = profile.model or default_model

    def get(self, name: str) -> Tool | None:
        return self._offered.get(name)

    def commit_tool(self, name: str) -> Tool | None:
        """Return the tool of this name, which carries out accepted previews. Models are not offered such tools, so that
        only accepted data is saved."""
        return self._all.get(name)

    def window_tokens(self, model: str) -> int | None:
        """Return the window of a model in tokens, by its full name with or without options; None if the size is
        unknown."""
        return None if self._windows is None else self._windows(model.partition("?")[0])

    @property
    def names(self) -> list[str]:
        return list(self._offered)

    @property
    def all(self) -> list[Tool]:
        """All offered tools. The result includes denied tools, because a catalogue shows them as denied."""
        return list(self._offered.values())

    def specs(self) -> list[ToolSpec]:
        """Return the tools as the model sees them, without denied tools."""
        return [
            ToolSpec(tool.name, tool.description, tool.input_schema)
            for tool in self._offered.values()
            if tool.policy != "deny"
        ]


class Profiles:
    """All profiles and all tools of the server. `named` turns `default_model` into a model's name. If the operator has
    named no model, that name is the first model that a provider lists. `rules` are the operator's rules about
    approvals."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        tools: Mapping[str, Tool],
        default_model: str,
        windows: Windows | None = None,
        source: ToolSource | None = None,
        named: Callable[[str], str] = str,
        rules: ApprovalRules = _NO_RULES,
        operated: Callable[[Tool], Tool | None] = lambda tool: tool,
    ) -> None:
        self.rules = rules
        self._operated = operated
        self._source = source
        self._profiles = {DEFAULT_PROFILE: Profile(name=DEFAULT_PROFILE), **profiles}
        self._by_word = {
            word.casefold(): profile for profile in self._profiles.values() for word in (profile.name, *profile.aliases)
        }
        self._tools = tools
        self._windows = windows
        self._default_model = default_model
        self._named = named

    @property
    def default_model(self) -> str:
        """The model of chats and profiles that name no model; '' if there is no default model."""
        return self._named(self._default_model)

    @property
    def all(self) -> list[Profile]:
        return list(self._profiles.values())

    def get(self, mode: str) -> Profile | None:
        """Return the profile whose name or alias is `mode`, ignoring case; None if there is no such profile."""
        return self._by_word.get(mode.casefold())

    def of(self, state: OwnerState) -> Profile:
        """Return the profile of a chat. The mode of the running command determines the profile, else the mode of the
        thread."""
        return self.named(_mode_of(state))

    def named(self, mode: str) -> Profile:
        """Return the profile that a mode means; the default profile if no profile has this name."""
        return self.get(mode) or self._profiles[DEFAULT_PROFILE]

    def params_of(self, state: OwnerState) -> JsonObject:
        """Return the profile's defaults of thread parameters, including its model, and `durable` if that model is a
        durable agent."""
        profile = self.of(state)
        if profile.is_durable:
            return {**profile.params, "model": profile.model, "durable": True}
        return {**profile.params, "model": profile.model} if profile.model else profile.params

    def tools_of(self, state: OwnerState) -> ChatTools:
        """Return the tools of a chat by its mode, its scope, the principal that started its run, and its thread's
        `tools_disabled` and `mcp_servers`."""
        profile = self.of(state)
        run = state.private.run
        return ChatTools(
            profile,
            self.known_tools(),
            frozenset(effective(state, "tools_disabled", profile.params).value or ()),
            self.default_model,
            self._windows,
            effective(state, "mcp_servers", profile.params).value,
            scope=nearest(wanted_scope(state, profile.params), profile.scopes),
            roles=run.principal.roles if run is not None else (),
            has_payloads=bool(payloads_of(state)),
            declared=declared_tools(state),
            of_agent=self._tools_of_agent(state),
            unknown_mode="" if self.get(mode := _mode_of(state)) else mode,
            rules=self.rules,
        )

    def _tools_of_agent(self, state: OwnerState) -> list[Tool]:
        """Return the tools that the agent of the open run has declared, with the operator's settings."""
        run = state.private.run
        if run is None or run.agent is None or not run.agent.tools:
            return []
        specs = (decoder(DeclaredAgentTool).decode(text) for text in run.agent.tools.values())
        operated = (self._operated(AgentTool.declared(spec)) for spec in specs)
        return [tool for tool in operated if tool is not None]

    def catalogue(self, profile: Profile, scope: Scope, roles: Collection[str]) -> list[Tool]:
        """Return the tools that a new chat of a principal with `roles` is offered in a scope (TOOL-12)."""
        return ChatTools(profile, self.known_tools(), frozenset(), "", scope=scope, roles=roles).all

    def known_tools(self) -> Mapping[str, Tool]:
        """Return all tools that can be called now, by name."""
        if self._source is not None and (coming := self._source.tools()):
            return dict(sorted({**coming, **self._tools}.items()))
        return self._tools
