"""A profile: a named bundle of identity, tools, model and limits, chosen per chat by the thread's `mode`.

Profiles are the operator's configuration; `Profiles` finds the one that holds for a chat, with what its scope says
otherwise, and joins it with the tool registry into the table that the plan looks things up in. An unknown mode falls
back to the default profile, an unknown scope to the nearest one around it. The one rule: what is offered follows from
configuration, the chat and who started the run; a body names a place in it, never a right (CTX-7).

Modes are matched without regard to case, and a profile may have aliases, because older clients write `AGENT` or
`NO_TOOLS`.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import Protocol, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from protocol.messages import JsonObject
from protocol.params import effective
from protocol.state import ChatState
from protocol.tool_names import covers, mcp_server_of
from server.agent.answer.final import CONTEXT_WARN_RATIO
from server.agent.answer.guard import ReplyGuard
from server.agent.place.context import payloads_of, wanted_scope
from server.agent.place.payload_types import Action, PayloadType
from server.agent.place.prompt import STANDARD_SECTIONS, Section, sections_at
from server.agent.place.scopes import TOP, is_within, nearest, prefixes
from server.agent.place.welcome import Starter
from server.providers.base import ToolSpec
from server.tools.base import Tool
from server.tools.bound import BoundTool
from server.tools.payloads import GET_PAYLOAD
from server.tools.traits import Binding, Scope

__all__ = ["DEFAULT_PROFILE", "ChatTools", "Profile", "Profiles", "ScopeTable", "ToolSource", "is_for"]

DEFAULT_PROFILE = "agent"

_T = TypeVar("_T")

Windows: TypeAlias = Callable[[str], int | None]
"""The size of a model's window in tokens, by its full name; None when nobody knows it."""

DEFAULT_IDENTITY = (
    "You are a helpful assistant. Use the tools you are offered when they help; say plainly when you do not know."
)


class ScopeTable(msgspec.Struct, frozen=True, kw_only=True):
    """What a scope says otherwise than its profile, for itself and the places inside it; None: nothing (CTX-4).

    `tools` are offered here and inside, and nowhere else in the profile unless that names them too; `payload_types`
    and `actions` come on top of the profile's.
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
    """`tools`: names of the tools offered, `mcp__NAME__*` for all of an MCP server, None for all. `model`: '' for the
    server's default. `params`: defaults of optional thread parameters, below what a thread sets itself (SET-1).
    `highlight`: keys of the request context, which may be dotted (CTX-3). `scopes`: its places by their paths.

    `aliases`: other names of the profile in `mode`, in any case. `greeting` and `starters` are shown to people before
    the first message; no prompt has them. `starters` None: not configured, and clients offer their own.

    `fallback`: models that answer, in this order, when the one that was asked is down. `summarizer`: the model that
    shortens long histories; '' for none, so that their oldest messages are left out. `delegate_to`: the profiles that
    chats below may have, None for all.
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
    reply_guard: ReplyGuard | None = None
    fallback: list[str] = []
    summarizer: str = ""
    context_warn_ratio: float = CONTEXT_WARN_RATIO
    bindings: dict[str, tuple[Binding, ...]] = {}

    def at(self, scope: Scope) -> "Profile":
        """As it is in a place: the texts of the most specific scope around it that has one, the payload types and
        actions of all of them, the sections that run there. `tools` and `scopes` stay; `offers` reads them."""
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
        """Is `tool` offered in a place (TOOL-5)? A scope that names it wins over the tool's own scopes."""
        name, traits = tool.name, tool.traits
        if any(covers(table.tools, name) for table in self._tables(scope)):
            return True
        if traits.scopes and not any(is_within(scope, place) for place in traits.scopes):
            return False
        if self.tools is not None:
            return covers(self.tools, name)
        return not any(covers(table.tools, name) for table in self.scopes.values())

    def _tables(self, scope: Scope) -> list[ScopeTable]:
        """The widest first."""
        return [self.scopes[place] for place in prefixes(scope) if place in self.scopes] if self.scopes else []


def _mode_of(state: ChatState) -> str:
    run = state.private.run
    return (run.params.get("mode") if run is not None else None) or state.thread.mode


def is_for(tool: Tool, roles: Container[str]) -> bool:
    """May somebody with these roles be offered it?"""
    return not tool.traits.required_role or tool.traits.required_role in roles


def _latest(own: _T, others: Iterable[_T | None]) -> _T:
    """The last one that is there."""
    for other in others:
        own = own if other is None else other
    return own


class ToolSource(Protocol):
    """Where tools come and go while the server runs."""

    def tools(self) -> Mapping[str, Tool]:
        """Those that can be called now, by name; asked at each step."""


class ChatTools:
    """The tools that one chat is offered, in stable order, and what its profile says in its place. A
    `calls.ToolTable`. `windows` tells the sizes of the models' windows, in tokens, by full name. `mcp_servers`: whose
    tools are among them, None for all. `roles` are those of who started the run. `has_payloads`: some stand on the
    active path. `unknown_mode`: the mode of the chat when no profile has it, so that `profile` is the default one; else
    ''."""

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
        unknown_mode: str = "",
    ) -> None:
        self.profile = profile.at(scope)
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
        self._windows = windows
        self.default_model = profile.model or default_model

    def get(self, name: str) -> Tool | None:
        return self._offered.get(name)

    def commit_tool(self, name: str) -> Tool | None:
        """A tool that carries accepted previews out. It is the server's to run: no model is offered it, in any place,
        so that nothing is saved which nobody has seen."""
        return self._all.get(name)

    @property
    def reply_guard(self) -> ReplyGuard | None:
        return self.profile.reply_guard

    @property
    def summarizer(self) -> str:
        return self.profile.summarizer

    @property
    def context_warn_ratio(self) -> float:
        return self.profile.context_warn_ratio

    def window_tokens(self, model: str) -> int | None:
        """Of a model by its full name, with or without options; None when nobody knows it."""
        return None if self._windows is None else self._windows(model.partition("?")[0])

    @property
    def params(self) -> JsonObject:
        return self.profile.params

    @property
    def payload_types(self) -> dict[str, PayloadType]:
        """Those of this place, by name."""
        return self.profile.payload_types

    @property
    def actions(self) -> dict[str, Action]:
        """Those that may be suggested in this place, by their word."""
        return self.profile.actions

    @property
    def names(self) -> list[str]:
        return list(self._offered)

    @property
    def all(self) -> list[Tool]:
        """Also the denied ones, which a catalogue shows as such."""
        return list(self._offered.values())

    def specs(self) -> list[ToolSpec]:
        """As the model sees them; a denied tool is not offered at all."""
        return [
            ToolSpec(tool.name, tool.description, tool.input_schema)
            for tool in self._offered.values()
            if tool.policy != "deny"
        ]


class Profiles:
    """All profiles of the server and all its tools. `named` turns `default_model` into the model that it means now: the
    first one that a provider lists, where nobody has named one."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        tools: Mapping[str, Tool],
        default_model: str,
        windows: Windows | None = None,
        source: ToolSource | None = None,
        named: Callable[[str], str] = str,
    ) -> None:
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
        """Return the model of chats and profiles that name none; '' when there is none."""
        return self._named(self._default_model)

    @property
    def all(self) -> list[Profile]:
        return list(self._profiles.values())

    def get(self, mode: str) -> Profile | None:
        """Return the profile whose name or alias is `mode`, in any case; None when there is none."""
        return self._by_word.get(mode.casefold())

    def of(self, state: ChatState) -> Profile:
        """The profile that holds for a chat: that of the command which runs, else of its thread."""
        return self.named(_mode_of(state))

    def named(self, mode: str) -> Profile:
        """The profile that a mode means: the default one when there is none of this name."""
        return self.get(mode) or self._profiles[DEFAULT_PROFILE]

    def params_of(self, state: ChatState) -> JsonObject:
        """The profile's defaults of thread parameters, the model among them."""
        profile = self.of(state)
        return {**profile.params, "model": profile.model} if profile.model else profile.params

    def tools_of(self, state: ChatState) -> ChatTools:
        """The table of this chat: from its mode, its scope, who started its run, and its thread's `tools_disabled` and
        `mcp_servers`."""
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
            unknown_mode="" if self.get(mode := _mode_of(state)) else mode,
        )

    def catalogue(self, profile: Profile, scope: Scope, roles: Collection[str]) -> list[Tool]:
        """What a new chat of somebody with `roles` is offered in a place (TOOL-12)."""
        return ChatTools(profile, self.known_tools(), frozenset(), "", scope=scope, roles=roles).all

    def known_tools(self) -> Mapping[str, Tool]:
        """All tools that can be called now, by name."""
        if self._source is not None and (coming := self._source.tools()):
            return dict(sorted({**coming, **self._tools}.items()))
        return self._tools
