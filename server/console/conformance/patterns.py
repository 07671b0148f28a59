"""Patterns of the transcripts: JSON that says which JSON is meant. Pure; `docs/conformance.md` is its reference.

An object names the keys that matter, since the wire only grows; a list names all of its elements; anything else is
itself. `"$name"` is whatever stands there the first time and the same every time after. The one rule: a mismatch is a
sentence that says where, what was expected and what came.
"""

import json
import re
from collections.abc import Callable, Iterator

from protocol.messages import JsonObject

__all__ = ["BadPattern", "Names", "fill", "mismatch", "shown"]

Names = dict[str, object]
"""What the names of a transcript are bound to."""

SHOWN_MAX_CHARACTERS = 300
"""Of a value in a sentence: enough to see what it is."""

_WHOLE = re.compile(r"\$(\w+)")
_INSIDE = re.compile(r"\$\{(\w+)\}")


class BadPattern(Exception):
    """The transcript itself is wrong."""


def fill(value: object, names: Names) -> object:
    """`value` with every `"$name"`, every `${name}` inside a string, and `{"$repeat": [text, count]}` replaced.

    Raises:
        BadPattern: a name that was never bound.
    """
    match value:
        case {"$repeat": [str() as text, int() as count]}:
            return text * count
        case str():
            if whole := _WHOLE.fullmatch(value):
                return _bound(whole[1], names)
            return _INSIDE.sub(lambda found: str(_bound(found[1], names)), value)
        case dict():
            return {key: fill(item, names) for key, item in value.items()}
        case list():
            return [fill(item, names) for item in value]
        case _:
            return value


def _bound(name: str, names: Names) -> object:
    if name not in names:
        raise BadPattern(f"${name} is not bound yet")
    return names[name]


def mismatch(pattern: object, value: object, names: Names, path: str = "") -> str | None:
    """Why `value` is not what `pattern` means, or None. Binds new names in `names` as it goes, also before it fails:
    give it a copy where that matters.

    Raises:
        BadPattern: an unknown matcher, or a `${name}` that is not bound.
    """
    match pattern:
        case str() if whole := _WHOLE.fullmatch(pattern):
            if whole[1] not in names and value is not None:
                names[whole[1]] = value
                return None
            return _equal(names.get(whole[1], {pattern: "any value"}), value, path)
        case str():
            return _equal(fill(pattern, names), value, path)
        case dict() if any(key.startswith("$") for key in pattern):
            return _special(pattern, value, names, path)
        case dict():
            return _object(pattern, value, names, path)
        case list():
            return _list(pattern, value, names, path)
        case _:
            return _equal(pattern, value, path)


def _equal(expected: object, value: object, path: str) -> str | None:
    # JSON has one kind of number; but true is no 1, which Python thinks.
    same = expected == value and isinstance(expected, bool) == isinstance(value, bool)
    return None if same else f"{path or 'it'} should be {shown(expected)}, is {shown(value)}"


def _object(pattern: JsonObject, value: object, names: Names, path: str) -> str | None:
    if not isinstance(value, dict):
        return f"{path or 'it'} should be an object, is {shown(value)}"
    for key, item in pattern.items():
        may_be_absent = isinstance(item, dict) and any(name.startswith("$") for name in item)
        if key not in value and not may_be_absent:  # a matcher judges an absent key as null
            return f"{path}/{key} is missing, should be {shown(item)}"
        if wrong := mismatch(item, value.get(key), names, f"{path}/{key}"):
            return wrong
    return None


def _list(pattern: list[object], value: object, names: Names, path: str) -> str | None:
    if not isinstance(value, list):
        return f"{path or 'it'} should be a list, is {shown(value)}"
    for index, (item, element) in enumerate(zip(pattern, value, strict=False)):
        if wrong := mismatch(item, element, names, f"{path}/{index}"):
            return wrong
    if len(pattern) != len(value):
        return f"{path or 'it'} should have {len(pattern)} elements, has {len(value)}: {shown(value)}"
    return None


def _special(pattern: JsonObject, value: object, names: Names, path: str) -> str | None:
    """`{"$matcher": argument}`; several in one object must all hold."""
    for key, argument in pattern.items():
        matcher = _MATCHERS.get(key)
        if matcher is None:
            raise BadPattern(f"there is no matcher {key}; there are {', '.join(_MATCHERS)}")
        if (wrong := matcher(argument, value, names, path)) is not None:
            return wrong
    return None


def _any(argument: object, value: object, names: Names, path: str) -> str | None:
    return None if value is not None else f"{path} should be there"


def _absent(argument: object, value: object, names: Names, path: str) -> str | None:
    return None if value is None else f"{path} should be absent, is {shown(value)}"


def _starts(argument: object, value: object, names: Names, path: str) -> str | None:
    holds = isinstance(value, str) and value.startswith(str(fill(argument, names)))
    return None if holds else f"{path} should start with {shown(argument)}, is {shown(value)}"


def _contains(argument: object, value: object, names: Names, path: str) -> str | None:
    holds = isinstance(value, str) and str(fill(argument, names)).casefold() in value.casefold()
    return None if holds else f"{path} should contain {shown(argument)}, is {shown(value)}"


def _matches(argument: object, value: object, names: Names, path: str) -> str | None:
    holds = isinstance(value, str) and re.fullmatch(str(argument), value, re.DOTALL)
    return None if holds else f"{path} should match {argument}, is {shown(value)}"


def _one_of(argument: object, value: object, names: Names, path: str) -> str | None:
    assert isinstance(argument, list)
    if any(mismatch(each, value, dict(names), path) is None for each in argument):
        return None
    return f"{path} should be one of {shown(argument)}, is {shown(value)}"


def _not(argument: object, value: object, names: Names, path: str) -> str | None:
    differs = mismatch(argument, value, dict(names), path)
    return None if differs else f"{path} should not be {shown(fill(argument, names))}"


def _has(argument: object, value: object, names: Names, path: str) -> str | None:
    """A list that holds, somewhere, an element for each of these patterns."""
    assert isinstance(argument, list)
    for item in argument:
        for element in value if isinstance(value, list) else ():
            tried = dict(names)
            if mismatch(item, element, tried, path) is None:
                names.update(tried)
                break
        else:
            return f"{path} should hold {shown(item)}, is {shown(value)}"
    return None


def _in_order(argument: object, value: object, names: Names, path: str) -> str | None:
    """A list that holds an element for each of these patterns, in this order; others may stand between."""
    assert isinstance(argument, list)
    elements: Iterator[object] = iter(value if isinstance(value, list) else ())
    for item in argument:
        for element in elements:
            tried = dict(names)
            if mismatch(item, element, tried, path) is None:
                names.update(tried)
                break
        else:
            return f"{path} should hold {shown(item)} after those before it, is {shown(value)}"
    return None


def _type(argument: object, value: object, names: Names, path: str) -> str | None:
    kind = {bool: "boolean", int: "number", float: "number", str: "string", list: "list", dict: "object"}
    return None if kind.get(type(value)) == argument else f"{path} should be a {argument}, is {shown(value)}"


def _at_least(argument: object, value: object, names: Names, path: str) -> str | None:
    assert isinstance(argument, int | float)
    holds = isinstance(value, int | float) and value >= argument
    return None if holds else f"{path} should be at least {argument}, is {shown(value)}"


_MATCHERS: dict[str, Callable[[object, object, Names, str], str | None]] = {
    "$any": _any,
    "$absent": _absent,
    "$starts": _starts,
    "$contains": _contains,
    "$matches": _matches,
    "$one_of": _one_of,
    "$not": _not,
    "$has": _has,
    "$in_order": _in_order,
    "$type": _type,
    "$at_least": _at_least,
}


def shown(value: object) -> str:
    """JSON, short enough for a sentence."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_MAX_CHARACTERS else text[: SHOWN_MAX_CHARACTERS - 1] + "…"
