"""The profiles that chats can choose, as configured.

What a profile names (tools, payload types, sections of its prompt) must exist: a name that nobody knows stops the start
and says what is known, since an assistant that quietly lacks a tool is a bug nobody sees.
"""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from protocol.errors import BadRequest
from protocol.messages import JsonObject
from protocol.params import MAX_ROUNDS, PARAMS
from protocol.thread import ALWAYS_PRESENT, read_patch
from protocol.tool_names import mcp_server_of
from server.agent.answer.guard import INSTRUCTION, ReplyGuard
from server.agent.place.payload_types import Action, PayloadType
from server.agent.place.profile import DEFAULT_IDENTITY, DEFAULT_PROFILE, Profile, ScopeTable
from server.agent.place.prompt import SECTIONS, STANDARD_SECTIONS, Section
from server.agent.place.scopes import path_of
from server.agent.place.welcome import Starter, Welcome, check_starters
from server.settings import Action as ActionSettings
from server.settings import Binding as BindingSettings
from server.settings import Models, Settings
from server.settings import Profile as ProfileSettings
from server.settings import ReplyGuard as GuardSettings
from server.settings import Scope as ScopeSettings
from server.settings import Starter as StarterSettings
from server.tools.base import Tool
from server.tools.traits import Binding, Scope, scope_at

__all__ = ["profiles_of", "starter_models"]

_T = TypeVar("_T")


def profiles_of(
    settings: Settings,
    tools: Collection[str] = (),
    *,
    payload_types: Mapping[str, PayloadType] | None = None,
    sections: Mapping[str, tuple[Section, ...]] | None = None,
    welcomes: Sequence[Welcome] = (),
) -> dict[str, Profile]:
    """Return the profiles by name, with the default profile. `tools` are the names of all tools; `sections` and
    `welcomes` are those of the operator's file.

    Raises:
        ValueError: a value that cannot be, or a name that nobody knows.
    """
    standard = {name: (section,) for name, section in SECTIONS.items()}
    known = _Known(settings, tools, payload_types or {}, {**standard, **(sections or {})})
    max_rounds, models = settings.limits.max_rounds, settings.models
    profiles = {name: _profile(name, wanted, max_rounds, known, models) for name, wanted in settings.profiles.items()}
    default = Profile(
        name=DEFAULT_PROFILE,
        params=_params(DEFAULT_PROFILE, ProfileSettings(), max_rounds),
        fallback=models.fallback,
        summarizer=models.summarizer,
    )
    profiles.setdefault(DEFAULT_PROFILE, default)
    _check_words(profiles)
    for welcome in welcomes:
        known.profiles([welcome.profile], "Welcome.profile")
        own = settings.profiles.get(welcome.profile, ProfileSettings())
        profiles[welcome.profile] = _welcoming(profiles[welcome.profile], own, welcome)
    return profiles


def starter_models(profiles: Iterable[Profile]) -> Iterator[tuple[str, str]]:
    """Yield, for each starter that names a model, the starter's path in the configuration and that model."""
    for profile in profiles:
        tables = [("", profile.starters), *((path_of(at), table.starters) for at, table in profile.scopes.items())]
        for place, starters in tables:
            inside = f'.scopes."{place}"' if place else ""
            for number, each in enumerate(starters or ()):
                yield f"profiles.{profile.name}{inside}.starters[{number}].model", each.model


def _welcoming(profile: Profile, configured: ProfileSettings, welcome: Welcome) -> Profile:
    """Return the profile; values that its settings leave out come from its `Welcome`."""
    if not welcome.place:
        return replace(profile, **_said(configured, welcome))
    if welcome.place not in profile.scopes:
        known = ", ".join(map(path_of, profile.scopes)) or "none"
        raise ValueError(
            f"Welcome({profile.name!r}).scope: the profile has no place {welcome.scope!r}; there are {known}"
        )
    by_place = {scope_at(name): table for name, table in configured.scopes.items()}
    said = _said(by_place.get(welcome.place, ScopeSettings()), welcome)
    return replace(profile, scopes={**profile.scopes, welcome.place: replace(profile.scopes[welcome.place], **said)})


def _said(configured: ProfileSettings | ScopeSettings, welcome: Welcome) -> dict[str, object]:
    said = {"greeting": welcome.greeting, "starters": welcome.starters}
    return {name: value for name, value in said.items() if value is not None and getattr(configured, name) is None}


def _starters(wanted: list[StarterSettings] | None, path: str) -> list[Starter] | None:
    """Raises ValueError as `check_starters`."""
    if wanted is None:
        return None
    found = [Starter(title=each.title, text=each.text, model=each.model, context=each.context) for each in wanted]
    check_starters(found, path)
    return found


def _check_words(profiles: Mapping[str, Profile]) -> None:
    """Raise ValueError if a name or an alias, in any case, means two profiles."""
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
    """What profiles may name. Each method raises ValueError, with `path` as the place in the settings."""

    def __init__(
        self,
        settings: Settings,
        tools: Collection[str],
        payload_types: Mapping[str, PayloadType],
        sections: Mapping[str, tuple[Section, ...]],
    ) -> None:
        self._tools = {*tools, *settings.tools}  # one that is switched off there may stay in lists
        self._by_name: Mapping[str, Tool] = tools if isinstance(tools, Mapping) else {}
        self._profiles = {DEFAULT_PROFILE, *settings.profiles}
        self._payload_types = payload_types
        self._sections = sections

    def tools(self, names: list[str], path: str) -> list[str]:
        """Those of MCP servers are not checked: they come and go with their servers."""
        for name in names:
            if name not in self._tools and mcp_server_of(name) is None:
                raise ValueError(_unknown(path, "tool", name, self._tools))
        return names

    def argument(self, tool: str, name: str, path: str) -> str:
        """Only where it is known what the tool takes."""
        takes = self._by_name[tool].input_schema.get("properties") if tool in self._by_name else None
        if takes and name not in takes:
            raise ValueError(_unknown(path, f"argument of {tool}", name, takes))
        return name

    def profiles(self, names: list[str], path: str) -> list[str]:
        for name in names:
            if name not in self._profiles:
                raise ValueError(_unknown(path, "profile", name, self._profiles))
        return names

    def payload_types(self, names: list[str], path: str) -> dict[str, PayloadType]:
        return _named(names, self._payload_types, path, "payload type")

    def sections(self, names: list[str], path: str) -> tuple[Section, ...]:
        found = _named(names, self._sections, path, "section").values()
        return tuple(section for of_name in found for section in of_name)


def _named(names: list[str], known: Mapping[str, _T], path: str, what: str) -> dict[str, _T]:
    for name in names:
        if name not in known:
            raise ValueError(_unknown(path, what, name, known))
    return {name: known[name] for name in names}


def _unknown(path: str, what: str, name: str, known: Collection[str]) -> str:
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
        starters=_starters(wanted.starters, f"{path}.starters"),
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
        reply_guard=_reply_guard(wanted.reply_guard),
        fallback=models.fallback if wanted.fallback is None else wanted.fallback,
        summarizer=models.summarizer if wanted.summarizer is None else wanted.summarizer,
        context_warn_ratio=wanted.context_warn_ratio,
        bindings=_bindings(wanted.bindings, known, path),
    )


def _reply_guard(wanted: GuardSettings) -> ReplyGuard | None:
    if not wanted.forbid_scripts:
        return None
    return ReplyGuard(
        forbid_scripts=list(wanted.forbid_scripts),
        instruction=wanted.instruction or INSTRUCTION,
        max_retries=wanted.max_retries,
        retry_text=wanted.retry_text,
    )


def _scopes(wanted: ProfileSettings, path: str, known: _Known, sections: Sequence[Section]) -> dict[Scope, ScopeTable]:
    """Return the scopes that the settings name and those that sections run in. A chat of a profile with scopes is
    always in one of them."""
    scopes: dict[Scope, ScopeTable] = {}
    for name, table in wanted.scopes.items():
        place = scope_at(name)
        if not place or place in scopes:
            wrong = "has no name" if not place else f"is the place {path_of(place)!r} again, which stands there already"
            raise ValueError(f'{path}.scopes."{name}": {wrong}')
        scopes[place] = _scope(table, f'{path}.scopes."{name}"', known)
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
        starters=_starters(wanted.starters, f"{path}.starters"),
    )


def _actions(wanted: list[ActionSettings]) -> dict[str, Action]:
    return {
        each.action: Action(action=each.action, label=each.label, description=each.description, handler=each.handler)
        for each in wanted
    }


def _bindings(wanted: list[BindingSettings], known: _Known, path: str) -> dict[str, tuple[Binding, ...]]:
    by_tool: dict[str, tuple[Binding, ...]] = {}
    for number, said in enumerate(wanted):
        (tool,) = known.tools([said.tool], f"{path}.bindings.{number}.tool")
        arg = known.argument(tool, said.arg, f"{path}.bindings.{number}.arg")
        by_tool[tool] = (*by_tool.get(tool, ()), Binding(arg, said.from_context, said.format))
    return by_tool


def _params(name: str, wanted: ProfileSettings, max_rounds: int) -> JsonObject:
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
