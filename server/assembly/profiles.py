"""The profiles that chats can choose, as configured."""

from collections.abc import Mapping
from types import MappingProxyType

from protocol.errors import BadRequest
from protocol.messages import JsonObject
from protocol.params import MAX_ROUNDS, PARAMS
from protocol.thread import ALWAYS_PRESENT, read_patch
from server.agent.payload_types import PayloadType
from server.agent.profile import DEFAULT_IDENTITY, DEFAULT_PROFILE, Profile
from server.settings import Profile as ProfileSettings
from server.settings import Settings

__all__ = ["profiles_of"]


def profiles_of(
    settings: Settings, payload_types: Mapping[str, PayloadType] = MappingProxyType({})
) -> dict[str, Profile]:
    """By name, the default one among them; each with all `payload_types`. Raises ValueError: a value that cannot be."""
    max_rounds = settings.limits.max_rounds
    profiles = {name: _profile(name, wanted, max_rounds, payload_types) for name, wanted in settings.profiles.items()}
    limit_only = _params(DEFAULT_PROFILE, ProfileSettings(), max_rounds)
    profiles.setdefault(
        DEFAULT_PROFILE, Profile(name=DEFAULT_PROFILE, params=limit_only, payload_types=dict(payload_types))
    )
    return profiles


def _profile(name: str, wanted: ProfileSettings, max_rounds: int, payload_types: Mapping[str, PayloadType]) -> Profile:
    return Profile(
        name=name,
        title=wanted.title or name,
        description=wanted.description,
        system_prompt=DEFAULT_IDENTITY if wanted.system_prompt is None else wanted.system_prompt,
        tools=wanted.tools,
        model=wanted.model,
        params=_params(name, wanted, max_rounds),
        payload_types=dict(payload_types),
    )


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
