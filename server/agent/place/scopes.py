"""Scopes: places inside a profile, paths of 0 to 3 names from the outside in, such as reports/articles. Pure.

What holds in a place holds in all places inside it, so everything here is about prefixes. It knows no chat and no
settings; the profile, the one-shot endpoints and the catalogue call it. The one rule: a scope that nobody declared
never widens what is offered: a chat is then in the nearest place around it that is declared.
"""

import re
from collections.abc import Collection

from server.tools.traits import Scope

__all__ = ["SCOPE_MAX_DEPTH", "TOP", "is_declared", "is_within", "nearest", "path_of", "prefixes", "read_scope"]

SCOPE_MAX_DEPTH = 3
"""A page, a tab and a part of it (PROTOCOL §16)."""

TOP: Scope = ()
"""The profile itself."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""The alphabet of ids, and a dot; no slash, which stands between names."""


def read_scope(value: object) -> Scope | None:
    """From what a client sent, a list of names or one string with slashes between them; None when it is neither."""
    names = value.split("/") if isinstance(value, str) and value else value
    if not isinstance(names, list) or len(names) > SCOPE_MAX_DEPTH:
        return None
    return tuple(names) if all(isinstance(name, str) and _NAME.fullmatch(name) for name in names) else None


def path_of(scope: Scope) -> str:
    """As settings and people write it."""
    return "/".join(scope)


def prefixes(scope: Scope) -> list[Scope]:
    """The places that `scope` is in, the widest first: the profile itself, …, `scope`."""
    return [scope[:depth] for depth in range(len(scope) + 1)]


def is_within(scope: Scope, place: Scope) -> bool:
    """Is `scope` the place itself, or inside it?"""
    return scope[: len(place)] == place


def is_declared(scope: Scope, declared: Collection[Scope]) -> bool:
    """Is it one of the declared places, or around one? Where none is declared, any place may be meant."""
    return not declared or any(is_within(place, scope) for place in declared)


def nearest(scope: Scope, declared: Collection[Scope]) -> Scope:
    """The longest prefix of `scope` that is declared; `TOP` always is."""
    return max(prefix for prefix in prefixes(scope) if prefix == TOP or is_declared(prefix, declared))
