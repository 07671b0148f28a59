"""Scopes: places inside a profile, paths of 0 to 3 names from the outside in, such as reports/articles. Pure.

What holds in a place holds in all places inside it, so everything here is about prefixes. The profile, the one-shot
endpoints and the catalogue call it. A scope that is not declared never widens what is offered: a chat is then in the
nearest place around it that is declared.
"""

from collections.abc import Collection, Iterable

from server.tools.traits import SCOPE_MAX_DEPTH, SCOPE_NAME_MAX_CHARACTERS, Scope, scope_at

__all__ = ["TOP", "is_declared", "is_within", "nearest", "path_of", "prefixes", "read_scope", "scope_of_page"]

TOP: Scope = ()
"""The profile itself."""


def read_scope(value: object) -> Scope | None:
    """From what a client sent, a list of names or one string with slashes between them; None when it is neither."""
    names = value.split("/") if isinstance(value, str) and value else value
    if not isinstance(names, list) or len(names) > SCOPE_MAX_DEPTH:
        return None
    return tuple(names) if all(isinstance(name, str) and _is_name(name) for name in names) else None


def _is_name(text: str) -> bool:
    """Printable without white space, and no slash, which stands between names."""
    return 0 < len(text) <= SCOPE_NAME_MAX_CHARACTERS and text.isprintable() and " " not in text and "/" not in text


def scope_of_page(names: Iterable[object]) -> Scope:
    """Return the scope that the names of a page give, the widest first: a page, its tab, a part of the tab. Any name is
    accepted (see `scope_at`), a number as its digits; other values are left out."""
    texts = (str(name) for name in names if isinstance(name, str | int | float) and not isinstance(name, bool))
    return scope_at("/".join(texts))


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
