"""Walking a table beside the types it will become: which keys there are, what belongs where, what a text means.

Pure. `sources.py` calls it for each source, before the values are converted, so that an unknown key is named together
with the source that has it. The one rule: what is wrong raises `Wrong` with the place in it, and no value, since a
value may be a secret.
"""

import difflib
import re
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from server.settings import Secret, Settings
from server.settings.agent import SCOPE_PATH, ScopePath

__all__ = ["Wrong", "check_shape", "fields_of", "from_text", "hint_at", "leaves"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SCOPE_PATH = re.compile(SCOPE_PATH)


class Wrong(Exception):
    """Something in one source; whoever catches it knows which. One line, whatever is written in a key."""

    def __init__(self, text: str) -> None:
        super().__init__("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text))


def _plain(hint: Any) -> Any:  # Any: type hints have no type of their own
    """The hint without None and annotations."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return _plain(next(choice for choice in get_args(hint) if choice is not type(None)))
    return hint


def fields_of(hint: Any) -> dict[str, Any] | None:  # Any: as above
    """The hints of a section's keys; None when it is no section."""
    plain = _plain(hint)
    if isinstance(plain, type) and issubclass(plain, msgspec.Struct):
        return {field.name: field.type for field in msgspec.structs.fields(plain)}
    return None


def _entry(hint: Any) -> Any:  # Any: as above
    """The hint of the values of a table whose keys are free names; None when it is no such table."""
    plain = _plain(hint)
    return get_args(plain)[1] if get_origin(plain) is dict else None


def _key_pattern(hint: Any) -> re.Pattern[str]:  # Any: as above
    """What the keys of a table with free names look like."""
    return _SCOPE_PATH if get_args(_plain(hint))[0] == ScopePath else _NAME


def _rule(hint: Any) -> str:  # Any: as above
    """Return a description of the keys that a table with free names accepts."""
    if _key_pattern(hint) is _SCOPE_PATH:
        return "a place is one to three names with / between, each of 1 to 64 characters"
    return "use letters, digits, _ and -"


def hint_at(keys: list[str]) -> Any:  # Any: as above
    hint: Any = Settings
    for depth, key in enumerate(keys):
        fields = fields_of(hint)
        if fields is not None:
            if key not in fields:
                raise Wrong(_unknown(".".join(keys[:depth]), key, fields))
            hint = fields[key]
        elif (entry := _entry(hint)) is None:
            raise Wrong(f"{'.'.join(keys[:depth])} is a value and has no {key}")
        else:
            _check_name(key, hint, ".".join(keys[:depth]))
            hint = entry
    return hint


def _unknown(prefix: str, key: str, fields: Mapping[str, object]) -> str:
    dot = "." if prefix else ""
    near = difflib.get_close_matches(key, fields, n=1, cutoff=0.5)
    if near:
        return f"unknown key {prefix}{dot}{key}; did you mean {prefix}{dot}{near[0]}?"
    return f"unknown key {prefix}{dot}{key}; known here: {', '.join(fields) or 'nothing yet'}"


def _check_name(key: str, hint: Any, path: str) -> None:  # Any: a type hint
    choices = get_args(_plain(hint))[0]
    if get_origin(choices) is Literal:
        if key not in get_args(choices):
            raise Wrong(f"{path}: there is no {key!r}; known here: {', '.join(get_args(choices))}")
        return
    if not _key_pattern(hint).fullmatch(key):
        raise Wrong(f"{path}: {key!r} is no name; {_rule(hint)}")


def check_shape(value: object, hint: Any, path: str) -> None:  # Any: a type hint
    """Refuse unknown keys and choices, and anything else where a table or a list belongs. Other values come later."""
    fields, entry = fields_of(hint), _entry(hint)
    wanted = _plain(hint)
    if fields is not None or entry is not None:
        if not isinstance(value, dict):
            raise Wrong(f"{path} must be a table, not {type(value).__name__}")
        for key, inner in value.items():
            if fields is not None and key not in fields:
                raise Wrong(_unknown(path, key, fields))
            if entry is not None:
                _check_name(key, hint, path)
            check_shape(inner, fields[key] if fields is not None else entry, f"{path}.{key}" if path else key)
    elif get_origin(wanted) is list:
        if not isinstance(value, list):
            raise Wrong(f"{path} must be a list, not {type(value).__name__}")
        for index, inner in enumerate(value):
            check_shape(inner, get_args(wanted)[0], f"{path}[{index}]")
    elif get_origin(wanted) is Literal and value not in get_args(wanted):
        raise Wrong(f"{path} must be one of {', '.join(get_args(wanted))}")


def leaves(value: object, hint: Any, path: str) -> Iterator[str]:  # Any: a type hint
    fields, entry = fields_of(hint), _entry(hint)
    if isinstance(value, dict) and (fields is not None or entry is not None):
        for key, inner in value.items():
            yield from leaves(inner, fields[key] if fields is not None else entry, f"{path}.{key}" if path else key)
    else:
        yield path


def from_text(hint: Any, text: str) -> object:  # Any: a type hint
    plain = _plain(hint)
    if plain is str or plain is Secret or get_origin(plain) is Literal:
        return text
    try:
        if plain in (bool, int, float):
            return msgspec.convert(text, plain, strict=False)
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        if plain in (bool, int, float):
            raise Wrong(f"the value is no {plain.__name__}") from None
        example = '["a", "b"]' if get_origin(plain) is list else '{"key": "value"}'
        raise Wrong(f"the value is no JSON; write it as {example}") from None  # not shown: keys may stand inside
