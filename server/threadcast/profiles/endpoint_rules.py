"""Rules that choose the profile of chats at a one-shot endpoint, and whether the endpoint's callers may choose another
profile (PROTOCOL §14)."""

import msgspec

from threadcast.profiles.profile import Profiles
from threadcast_protocol.wire.errors import BadRequest

__all__ = ["NO_RULE", "EndpointRule"]


class EndpointRule(msgspec.Struct, frozen=True):
    """The profile rule of an endpoint: its settings, with aliases replaced by the profiles' own names.

    `profile` names the profile of chats that begin at the endpoint; '' means the default profile. `modes` are the names
    of the profiles that callers may choose by `mode`: None allows all profiles; with an empty set, `mode` is ignored.
    """

    profile: str = ""
    modes: frozenset[str] | None = frozenset()

    def wanted(self, mode: object, profiles: Profiles) -> str:
        """Return the name of the profile that a caller asks for; '' if `mode` is empty, or callers may not choose a
        profile at this endpoint.

        Raises:
            BadRequest: the profile does not exist, or callers may not choose it at this endpoint.
        """
        if mode is None or mode == "" or (self.modes is not None and not self.modes):
            return ""
        profile = profiles.get(mode) if isinstance(mode, str) else None
        if profile is None or (self.modes is not None and profile.name not in self.modes):
            names = sorted(self.modes if self.modes is not None else (each.name for each in profiles.all))
            raise BadRequest(f"mode: must be one of {', '.join(names)} here", path="/mode")
        return profile.name


NO_RULE = EndpointRule()
"""The rule of an endpoint that the configuration does not name."""
