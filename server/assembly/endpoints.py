"""The one-shot endpoints and the profiles behind them, as configured."""

import difflib

from server.agent.place.profile import Profiles
from server.api.endpoints import EndpointRule
from server.settings import Settings

__all__ = ["endpoints_of"]


def endpoints_of(settings: Settings, profiles: Profiles) -> dict[str, EndpointRule]:
    """Return the rules by path. Raises ValueError: a named profile does not exist."""
    rules: dict[str, EndpointRule] = {}
    for path, wanted in settings.endpoints.items():
        place = f'endpoints."{path}"'
        profile = _named(wanted.profile, f"{place}.profile", profiles) if wanted.profile else ""
        modes: frozenset[str] | None = None if wanted.mode is True else frozenset()
        if isinstance(wanted.mode, list) and wanted.mode:
            chosen = (_named(name, f"{place}.mode", profiles) for name in wanted.mode)
            modes = frozenset([*chosen, *([profile] if profile else [])])
        rules[path] = EndpointRule(profile, modes)
    return rules


def _named(name: str, place: str, profiles: Profiles) -> str:
    """Return the profile's own name for a name or an alias. Raises ValueError."""
    profile = profiles.get(name)
    if profile is None:
        names = [each.name for each in profiles.all]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(names))}"
        raise ValueError(f"{place}: there is no profile {name!r}; {hint}")
    return profile.name
