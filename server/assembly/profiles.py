"""The profiles that chats can choose, as configured."""

from protocol.errors import BadRequest
from protocol.messages import JsonObject
from protocol.params import MAX_ROUNDS, PARAMS
from protocol.thread import ALWAYS_PRESENT, read_patch
from server.agent.profile import DEFAULT_IDENTITY, DEFAULT_PROFILE, Profile
from server.settings import Profile as ProfileSettings
from server.settings import Settings
from server.tools.traits import Binding

__all__ = ["profiles_of"]


def profiles_of(settings: Settings) -> dict[str, Profile]:
    """By name, the default one among them. Raises ValueError: a value that cannot be."""
    max_rounds = settings.limits.max_rounds
    profiles = {name: _profile(name, wanted, max_rounds) for name, wanted in settings.profiles.items()}
    limit_only = _params(DEFAULT_PROFILE, ProfileSettings(), max_rounds)
    profiles.setdefault(DEFAULT_PROFILE, Profile(name=DEFAULT_PROFILE, params=limit_only))
    return profiles


def _profile(name: str, wanted: ProfileSettings, max_rounds: int) -> Profile:
    return Profile(
        name=name,
        title=wanted.title or name,
        description=wanted.description,
        system_prompt=DEFAULT_IDENTITY if wanted.system_prompt is None else wanted.system_prompt,
        tools=wanted.tools,
        model=wanted.model,
        params=_params(name, wanted, max_rounds),
        bindings=_bindings(wanted),
    )


def _bindings(wanted: ProfileSettings) -> dict[str, tuple[Binding, ...]]:
    by_tool: dict[str, tuple[Binding, ...]] = {}
    for said in wanted.bindings:
        binding = Binding(said.arg, said.from_context, said.format)
        by_tool[said.tool] = (*by_tool.get(said.tool, ()), binding)
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
