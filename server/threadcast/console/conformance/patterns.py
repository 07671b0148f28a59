"""Patterns of the transcripts: JSON that describes other JSON. `docs/conformance.md` is the reference.

An object in a pattern names only the keys that matter, because later versions of the wire add keys. A list names all of
its elements. Every other value matches itself. The string `"$name"` matches any value the first time, and the same
value from then on. A mismatch is a sentence that says where the value differs, what was expected and what was found.
The module is pure.
"""

import json
import re
from collections.abc import Callable

from threadcast_protocol.wire.messages import JsonObject

__all__ = ["BadPattern", "Names", "fill", "mismatch", "shown", "value_at"]

Names = dict[str, object]
"""Maps the names of a transcript to their values."""

SHOWN_MAX_CHARACTERS = 300
"""Maximum characters of a value in a sentence: enough to recognize the value."""

_WHOLE = re.compile(r"\$(\w+)")
_INSIDE = re.compile(r"\$\{(\w+)\}")


class BadPattern(Exception):
    """A transcript has a pattern that cannot be used."""


def fill(value: object, names: Names) -> object:
    """Return `value` with every `"$name"`, every `${name}` inside a string, and `{"$repeat": [text, count]}` replaced.

    Raises:
        BadPattern: a name has no value yet.
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
        raise BadPattern(f"${name} is not bound yet; an earlier step must bind it")
    return names[name]


def mismatch(pattern: object, value: object, names: Names, path: str = "") -> str | None:
    """Match a value. If the value matches, returns None and adds new names to `names`; otherwise returns a sentence
    about the mismatch.

    `path` is the place of the value, which the sentence names.

    Raises:
        BadPattern: the pattern has an unknown matcher, or a `${name}` without a value.
    """
    tried = dict(names)
    if (wrong := _mismatch(pattern, value, tried, path)) is None:
        names.update(tried)
    return wrong


def _mismatch(pattern: object, value: object, names: Names, path: str) -> str | None:
    """Match like `mismatch`, but names may be added even if the value does not match."""
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
    # JSON has one kind of number. In Python True equals 1, in JSON it does not.
    same = expected == value and isinstance(expected, bool) == isinstance(value, bool)
    return None if same else f"{path or 'it'} should be {shown(expected)}, is {shown(value)}"


def _object(pattern: JsonObject, value: object, names: Names, path: str) -> str | None:
    if not isinstance(value, dict):
        return f"{path or 'it'} should be an object, is {shown(value)}"
    for key, item in pattern.items():
        may_be_absent = isinstance(item, dict) and any(name.startswith("$") for name in item)
        if key not in value and not may_be_absent:  # a matcher treats an absent key as null
            return f"{path}/{key} is missing, should be {shown(item)}"
        if wrong := _mismatch(item, value.get(key), names, f"{path}/{key}"):
            return wrong
    return None


def _list(pattern: list[object], value: object, names: Names, path: str) -> str | None:
    if not isinstance(value, list):
        return f"{path or 'it'} should be a list, is {shown(value)}"
    for index, (item, element) in enumerate(zip(pattern, value, strict=False)):
        if wrong := _mismatch(item, element, names, f"{path}/{index}"):
            return wrong
    if len(pattern) != len(value):
        return f"{path or 'it'} should have {len(pattern)} elements, has {len(value)}: {shown(value)}"
    return None


def _special(pattern: JsonObject, value: object, names: Names, path: str) -> str | None:
    """Match `{"$matcher": argument}`. If an object has several matchers, all of them must match."""
    for key, argument in pattern.items():
        if key not in _MATCHERS:
            raise BadPattern(f"there is no matcher {key}; use one of {', '.join(_MATCHERS)}")
        if (words := _MATCHERS[key](argument, value, names)) is not None:
            return f"{path or 'it'} should {words}, is {shown(value)}"
    return None


def _any(argument: object, value: object, names: Names) -> str | None:
    return None if value is not None else "be there"


def _absent(argument: object, value: object, names: Names) -> str | None:
    return None if value is None else "be absent"


def _starts(argument: object, value: object, names: Names) -> str | None:
    holds = isinstance(value, str) and value.startswith(str(fill(argument, names)))
    return None if holds else f"start with {shown(argument)}"


def _contains(argument: object, value: object, names: Names) -> str | None:
    holds = isinstance(value, str) and str(fill(argument, names)).casefold() in value.casefold()
    return None if holds else f"contain {shown(argument)}"


def _matches(argument: object, value: object, names: Names) -> str | None:
    holds = isinstance(value, str) and re.fullmatch(str(argument), value, re.DOTALL)
    return None if holds else f"match {argument}"


def _one_of(argument: object, value: object, names: Names) -> str | None:
    holds = any(mismatch(each, value, dict(names)) is None for each in _list_of(argument))
    return None if holds else f"be one of {shown(argument)}"


def _not(argument: object, value: object, names: Names) -> str | None:
    return None if mismatch(argument, value, dict(names)) else f"not be {shown(fill(argument, names))}"


def _has(argument: object, value: object, names: Names) -> str | None:
    """Match a list that holds an element for each pattern."""
    for item in _list_of(argument):
        if not any(mismatch(item, element, names) is None for element in (value if isinstance(value, list) else [])):
            return f"hold {shown(item)}"
    return None


def _in_order(argument: object, value: object, names: Names) -> str | None:
    """Match a list that holds an element for each pattern, in the order of the patterns, with gaps allowed."""
    elements = iter(value if isinstance(value, list) else [])  # `any` stops after a match; the next one continues
    for item in _list_of(argument):
        if not any(mismatch(item, element, names) is None for element in elements):
            return f"hold {shown(item)} after the elements of the patterns before it"
    return None


def _type(argument: object, value: object, names: Names) -> str | None:
    kind = {bool: "boolean", int: "number", float: "number", str: "string", list: "list", dict: "object"}
    return None if kind.get(type(value)) == argument else f"be a {argument}"


def _at_least(argument: object, value: object, names: Names) -> str | None:
    assert isinstance(argument, int | float)
    return None if isinstance(value, int | float) and value >= argument else f"be at least {argument}"


def _list_of(argument: object) -> list[object]:
    assert isinstance(argument, list)
    return argument


_MATCHERS: dict[str, Callable[[object, object, Names], str | None]] = {
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
"""Maps the name of a matcher to its function. The function returns None if the value matches; otherwise it returns the
end of the sentence "the value should …"."""


def shown(value: object) -> str:
    """Return a value as JSON, cut so that it fits into a sentence."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_MAX_CHARACTERS else text[: SHOWN_MAX_CHARACTERS - 1] + "…"


def value_at(value: object, pointer: str) -> object:
    """Return the part of a JSON value at a path such as `/messages/0/content`; None if there is no such part."""
    for key in pointer.split("/")[1:]:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value
