"""The building blocks of settings: secrets, sections, and the types of names, times and sizes.

Each section of `threadcast.toml` is a frozen struct that refuses unknown keys. A `Secret` holds a secret; its `repr`,
its `str` and its log lines never contain the value.
"""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

__all__ = ["Bytes", "Count", "Name", "Seconds", "Secret", "Section", "revealed"]

Name: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$(?!\n)")]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
Bytes: TypeAlias = Annotated[int, Meta(ge=1_024, le=4_294_967_296)]


class Secret:
    """A secret string; only `reveal` returns the value."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret('***')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)


def revealed(secrets: Mapping[str, Secret]) -> dict[str, str]:
    """Return the revealed values of a table of secrets."""
    return {name: secret.reveal() for name, secret in secrets.items()}


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass
