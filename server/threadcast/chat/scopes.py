"""Reads and compares scopes. A scope is a part of a profile, written as a path of 0 to 3 names such as
reports/articles.

Settings of a scope also apply to all scopes inside it, so the functions compare prefixes of paths. A chat whose scope
is not declared uses the nearest declared scope around it, so an undeclared scope never gives access to more tools. All
functions are pure.
"""

import unicodedata
from collections.abc import Collection, Iterable
from typing import TypeAlias

__all__ = [
    "SCOPE_MAX_DEPTH",
    "SCOPE_NAME_MAX_CHARACTERS",
    "TOP",
    "Scope",
    "is_declared",
    "is_within",
    "nearest",
    "path_of",
    "prefixes",
    "read_scope",
    "scope_at",
    "scope_of_page",
]

Scope: TypeAlias = tuple[str, ...]
"""A scope: 0 to 3 names, the outermost first."""

SCOPE_MAX_DEPTH = 3
"""The maximum number of names: a page, a tab and a part of the tab (PROTOCOL §16)."""

SCOPE_NAME_MAX_CHARACTERS = 64

TOP: Scope = ()
"""The scope of the profile itself, which has no names."""


def read_scope(value: object) -> Scope | None:
    """Read a scope from a client: a list of names, or a string of names separated by slashes. Returns None for an
    invalid value."""
    names = value.split("/") if isinstance(value, str) and value else value
    if not isinstance(names, list) or len(names) > SCOPE_MAX_DEPTH:
        return None
    return tuple(names) if all(isinstance(name, str) and _is_name(name) for name in names) else None


def _is_name(text: str) -> bool:
    """Return whether `text` may be a name: printable, without white space and without a slash, the separator."""
    return 0 < len(text) <= SCOPE_NAME_MAX_CHARACTERS and text.isprintable() and " " not in text and "/" not in text


def scope_of_page(names: Iterable[object]) -> Scope:
    """Return the scope for the names of a page, a tab and a part of the tab, in this order. Any name is accepted (see
    `scope_at`), and numbers are converted to text; other values are left out."""
    texts = (str(name) for name in names if isinstance(name, str | int | float) and not isinstance(name, bool))
    return scope_at("/".join(texts))


def path_of(scope: Scope) -> str:
    """Return the names separated by slashes, as in settings."""
    return "/".join(scope)


def prefixes(scope: Scope) -> list[Scope]:
    """Return the scopes that contain `scope`, from the profile itself to `scope`."""
    return [scope[:depth] for depth in range(len(scope) + 1)]


def is_within(scope: Scope, outer: Scope) -> bool:
    """Return whether `scope` is `outer` or is inside `outer`."""
    return scope[: len(outer)] == outer


def is_declared(scope: Scope, declared: Collection[Scope]) -> bool:
    """Return whether `scope` is a declared scope or contains a declared scope. If no scope is declared, returns
    True."""
    return not declared or any(is_within(outer, scope) for outer in declared)


def nearest(scope: Scope, declared: Collection[Scope]) -> Scope:
    """Return the longest declared prefix of `scope`. `TOP` is always declared."""
    return max(prefix for prefix in prefixes(scope) if prefix == TOP or is_declared(prefix, declared))


def scope_at(path: str) -> Scope:
    """Return the scope for a `path` from a page or from an operator. A path has names separated by /, such as "/Drug
    search/Results".

    Empty names are left out. In each name, white space and unprintable characters become one _, and the name is cut at
    `SCOPE_NAME_MAX_CHARACTERS`, so that pages and operators get the same scope from the same words. Names after the
    first `SCOPE_MAX_DEPTH` are dropped.
    """
    names = (_scope_name(part) for part in path.split("/"))
    return tuple(name for name in names if name)[:SCOPE_MAX_DEPTH]


def _scope_name(text: str) -> str:
    words = "".join(
        character if character.isprintable() else " " for character in unicodedata.normalize("NFC", text)
    ).split()
    return "_".join(words)[:SCOPE_NAME_MAX_CHARACTERS]
