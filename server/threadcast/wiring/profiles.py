"""Builds the profiles that chats can choose, from the settings.

Tools, payload types and sections that a profile names must exist. If a name is unknown, the start fails with an error
that lists the known names; otherwise an assistant would lack a tool without any notice.
"""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from threadcast.chat.params import MAX_ROUNDS, PARAMS
from threadcast.chat.scopes import Scope, path_of, scope_at
from threadcast.custom_agents.agent import Agent
from threadcast.profiles.payload_types import Action, PayloadType
from threadcast.profiles.profile import DEFAULT_IDENTITY, DEFAULT_PROFILE, Profile, ScopeTable
from threadcast.profiles.prompt import SECTIONS, STANDARD_SECTIONS, Section
from threadcast.profiles.welcome import Welcome, check_starters
from threadcast.providers.base import AGENTS
from threadcast.settings import Models, Settings, ToolBinding
from threadcast.settings import Profile as ProfileSettings
from threadcast.settings import Scope as ScopeSettings
from threadcast.tools.base import Tool
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.thread import ALWAYS_PRESENT, read_patch
from threadcast_protocol.wire.tool_names import mcp_server_of

__all__ = ["profiles_of", "starter_models", "unknown"]

_T = TypeVar("_T")


def profiles_of(
    settings: Settings,
    tools: Collection[str] = (),
    *,
    payload_types: Mapping[str, PayloadType] | None = None,
    sections: Mapping[str, tuple[Section, ...]] | None = None,
    welcomes: Sequence[Welcome] = (),
    agents: Sequence[Agent] = (),
) -> dict[str, Profile]:
    """Return the profiles by name, with the default profile and a profile for each agent. `tools` are the names of all
    tools; `sections`, `welcomes` and `agents` come from the operator's file.

    Raises:
        ValueError: a value is wrong, or a name is unknown.
    """
    standard = {name: (section,) for name, section in SECTIONS.items()}
    known = _Known(
        settings, tools, payload_types or {}, {**standard, **(sections or {})}, {each.name for each in agents}
    )
    max_rounds, models = settings.limits.max_rounds, settings.models
    profiles = {name: _profile(name, wanted, max_rounds, known, models) for name, wanted in settings.profiles.items()}
    default = Profile(
        name=DEFAULT_PROFILE,
        params=_params(DEFAULT_PROFILE, ProfileSettings(), max_rounds),
        fallback=models.fallback,
        summarizer=models.summarizer,
    )
    profiles.setdefault(DEFAULT_PROFILE, default)
    for each in agents:
        own = settings.profiles.get(each.name, ProfileSettings())
        profiles[each.name] = _answered_by(each, _profile(each.name, own, max_rounds, known, models), own, known)
    _check_words(profiles)
    for welcome in welcomes:
        known.profiles([welcome.profile], "Welcome.profile")
        own = settings.profiles.get(welcome.profile, ProfileSettings())
        profiles[welcome.profile] = _welcoming(profiles[welcome.profile], own, welcome)
    return profiles


def _answered_by(agent: Agent, profile: Profile, configured: ProfileSettings, known: "_Known") -> Profile:
    """Return the profile in which `agent` answers. Values of the settings override values of the agent.

    Raises:
        ValueError: the settings name a model, or the agent names a tool that does not exist.
    """
    path = f"profiles.{agent.name}"
    if configured.model or configured.fallback:
        raise ValueError(f"{path}: the agent {agent.name!r} of server.app answers here; leave out model and fallback")
    tools = profile.tools
    if configured.tools is None and agent.tool_names is not None:
        tools = known.tools(agent.tool_names, f"agent {agent.name}: tools")
    return replace(
        profile,
        title=configured.title or agent.title,
        description=configured.description or agent.description,
        tools=tools,
        model=f"{AGENTS}{agent.name}",
        is_durable=agent.is_durable,
        fallback=[],
    )


def starter_models(profiles: Iterable[Profile]) -> Iterator[tuple[str, str]]:
    """Yield, for each starter that names a model, the starter's path in the configuration and that model."""
    for profile in profiles:
        tables = [("", profile.starters), *((path_of(at), table.starters) for at, table in profile.scopes.items())]
        for scope_name, starters in tables:
            inside = f'.scopes."{scope_name}"' if scope_name else ""
            for number, each in enumerate(starters or ()):
                yield f"profiles.{profile.name}{inside}.starters[{number}].model", each.model


def _welcoming(profile: Profile, configured: ProfileSettings, welcome: Welcome) -> Profile:
    """Return the profile with values of its `Welcome` in place of those that the settings leave out."""
    if not welcome.parsed_scope:
        return replace(profile, **_said(configured, welcome))
    if welcome.parsed_scope not in profile.scopes:
        known = ", ".join(map(path_of, profile.scopes)) or "none"
        raise ValueError(
            f"Welcome({profile.name!r}).scope: the profile has no scope {welcome.scope!r}; there are {known}"
        )
    by_scope = {scope_at(name): table for name, table in configured.scopes.items()}
    said = _said(by_scope.get(welcome.parsed_scope, ScopeSettings()), welcome)
    return replace(
        profile, scopes={**profile.scopes, welcome.parsed_scope: replace(profile.scopes[welcome.parsed_scope], **said)}
    )


def _said(configured: ProfileSettings | ScopeSettings, welcome: Welcome) -> dict[str, object]:
    said = {"greeting": welcome.greeting, "starters": welcome.starters}
    return {name: value for name, value in said.items() if value is not None and getattr(configured, name) is None}


def _check_words(profiles: Mapping[str, Profile]) -> None:
    """Raise ValueError if a name or an alias belongs to two profiles; upper and lower case are equal."""
    meant: dict[str, tuple[str, str]] = {}
    words = [(name, name, f"profiles.{name}") for name in profiles]
    words += [(alias, name, f"profiles.{name}.aliases") for name, each in profiles.items() for alias in each.aliases]
    for word, name, path in words:
        other, other_path = meant.setdefault(word.casefold(), (name, path))
        if other != name:
            raise ValueError(
                f"{path}: {word!r} names the profile {other!r} already ({other_path}; case does not matter, and there "
                f"is always a profile {DEFAULT_PROFILE!r}); choose another word"
            )


class _Known:
    """The names that profiles may refer to. Each method checks names and raises ValueError for an unknown name; `path`
    is the place of the names in the settings."""

    def __init__(
        self,
        settings: Settings,
        tools: Collection[str],
        payload_types: Mapping[str, PayloadType],
        sections: Mapping[str, tuple[Section, ...]],
        agents: Collection[str] = (),
    ) -> None:
        self._tools = {*tools, *settings.tools}  # lists may name a tool that is switched off in the settings
        self._by_name: Mapping[str, Tool] = tools if isinstance(tools, Mapping) else {}
        self._profiles = {DEFAULT_PROFILE, *settings.profiles, *agents}
        self._payload_types = payload_types
        self._sections = sections

    def tools(self, names: list[str], path: str) -> list[str]:
        """Check the names of tools. Tools of MCP servers are not checked, because they depend on the servers."""
        for name in names:
            if name not in self._tools and mcp_server_of(name) is None:
                raise ValueError(unknown(path, "tool", name, self._tools))
        return names

    def argument(self, tool: str, name: str, path: str) -> str:
        """Check the name of an argument; only tools with a known schema are checked."""
        takes = self._by_name[tool].input_schema.get("properties") if tool in self._by_name else None
        if takes and name not in takes:
            raise ValueError(unknown(path, f"argument of {tool}", name, takes))
        return name

    def profiles(self, names: list[str], path: str) -> list[str]:
        return [*_named(names, dict.fromkeys(self._profiles), path, "profile")]

    def payload_types(self, names: list[str], path: str) -> dict[str, PayloadType]:
        return _named(names, self._payload_types, path, "payload type")

    def sections(self, names: list[str], path: str) -> tuple[Section, ...]:
        found = _named(names, self._sections, path, "section").values()
        return tuple(section for of_name in found for section in of_name)


def _named(names: list[str], known: Mapping[str, _T], path: str, what: str) -> dict[str, _T]:
    for name in names:
        if name not in known:
            raise ValueError(unknown(path, what, name, known))
    return {name: known[name] for name in names}


def unknown(path: str, what: str, name: str, known: Collection[str]) -> str:
    """Return an error sentence about an unknown name; the sentence suggests a similar name, or else lists all `known`
    names."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known)) or 'none'}"
    return f"{path}: there is no {what} {name!r}; {hint}"


def _profile(name: str, wanted: ProfileSettings, max_rounds: int, known: _Known, models: Models) -> Profile:
    path = f"profiles.{name}"
    sections = STANDARD_SECTIONS if wanted.sections is None else known.sections(wanted.sections, f"{path}.sections")
    return Profile(
        name=name,
        title=wanted.title or name,
        aliases=list(wanted.aliases),
        description=wanted.description,
        greeting=wanted.greeting or "",
        starters=check_starters(wanted.starters, f"{path}.starters"),
        system_prompt=DEFAULT_IDENTITY if wanted.system_prompt is None else wanted.system_prompt,
        guidelines=wanted.guidelines,
        custom_instructions=wanted.custom_instructions,
        highlight=wanted.highlight,
        sections=sections,
        tools=None if wanted.tools is None else known.tools(wanted.tools, f"{path}.tools"),
        delegate_to=None if wanted.delegate_to is None else known.profiles(wanted.delegate_to, f"{path}.delegate_to"),
        model=wanted.model,
        params=_params(name, wanted, max_rounds),
        payload_types=known.payload_types(wanted.payloads, f"{path}.payloads"),
        actions=_actions(wanted.actions),
        scopes=_scopes(wanted, path, known, sections),
        reply_guard=wanted.reply_guard,
        fallback=models.fallback if wanted.fallback is None else wanted.fallback,
        summarizer=models.summarizer if wanted.summarizer is None else wanted.summarizer,
        context_warn_ratio=wanted.context_warn_ratio,
        bindings=_bindings(wanted.bindings, known, path),
        allows_autonomous=wanted.allow_autonomous,
    )


def _scopes(wanted: ProfileSettings, path: str, known: _Known, sections: Sequence[Section]) -> dict[Scope, ScopeTable]:
    """Return the scopes that the settings or the sections name. A chat of a profile with scopes is always in one of
    them."""
    scopes: dict[Scope, ScopeTable] = {}
    for name, table in wanted.scopes.items():
        parsed_scope = scope_at(name)
        if not parsed_scope or parsed_scope in scopes:
            wrong = "has no name" if not parsed_scope else f"names the scope {path_of(parsed_scope)!r} again"
            raise ValueError(f'{path}.scopes."{name}": {wrong}')
        scopes[parsed_scope] = _scope(table, f'{path}.scopes."{name}"', known)
    for section in sections:
        if scopes and section.scope:
            scopes.setdefault(section.scope, ScopeTable())
    return scopes


def _scope(wanted: ScopeSettings, path: str, known: _Known) -> ScopeTable:
    return ScopeTable(
        system_prompt=wanted.system_prompt,
        guidelines=wanted.guidelines,
        custom_instructions=wanted.custom_instructions,
        highlight=wanted.highlight,
        tools=known.tools(wanted.tools, f"{path}.tools"),
        payload_types=known.payload_types(wanted.payloads, f"{path}.payloads"),
        actions=_actions(wanted.actions),
        greeting=wanted.greeting,
        starters=check_starters(wanted.starters, f"{path}.starters"),
    )


def _actions(wanted: list[Action]) -> dict[str, Action]:
    return {each.action: each for each in wanted}


def _bindings(wanted: list[ToolBinding], known: _Known, path: str) -> dict[str, tuple[ToolBinding, ...]]:
    by_tool: dict[str, tuple[ToolBinding, ...]] = {}
    for number, each in enumerate(wanted):
        known.tools([each.tool], f"{path}.bindings.{number}.tool")
        known.argument(each.tool, each.arg, f"{path}.bindings.{number}.arg")
        by_tool[each.tool] = (*by_tool.get(each.tool, ()), each)
    return by_tool


def _params(name: str, wanted: ProfileSettings, max_rounds: int) -> JsonObject:
    """Return a profile's defaults of thread parameters. Raises ValueError if a key or value is not allowed."""
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
