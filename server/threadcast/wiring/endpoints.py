"""Builds, from the settings, the profile rule of each one-shot endpoint."""

from threadcast.profiles.endpoint_rules import EndpointRule
from threadcast.profiles.profile import Profiles
from threadcast.settings import Settings
from threadcast.wiring.profiles import unknown

__all__ = ["endpoints_of"]


def endpoints_of(settings: Settings, profiles: Profiles) -> dict[str, EndpointRule]:
    """Return the rules by path. Raises ValueError: a named profile does not exist."""
    rules: dict[str, EndpointRule] = {}
    for path, wanted in settings.endpoints.items():
        setting = f'endpoints."{path}"'
        profile = _named(wanted.profile, f"{setting}.profile", profiles) if wanted.profile else ""
        modes: frozenset[str] | None = None if wanted.mode is True else frozenset()
        if isinstance(wanted.mode, list) and wanted.mode:
            chosen = (_named(name, f"{setting}.mode", profiles) for name in wanted.mode)
            modes = frozenset([*chosen, *([profile] if profile else [])])
        rules[path] = EndpointRule(profile, modes)
    return rules


def _named(name: str, setting: str, profiles: Profiles) -> str:
    """Return the profile's own name for a name or an alias. Raises ValueError."""
    profile = profiles.get(name)
    if profile is None:
        raise ValueError(unknown(setting, "profile", name, [each.name for each in profiles.all]))
    return profile.name
