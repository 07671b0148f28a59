"""Checks the keys and tables of a settings file against the types of the sections, and parses values given as text.

Pure. `sources.py` calls it for each source, before the values are converted, so that the error for an unknown key names
its source. Every error is a `Wrong` with the path but without the value, since a value may be a secret.
"""

import difflib
import re
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from threadcast.settings import Secret, Settings
from threadcast.settings.agent import SCOPE_PATH, ScopePath

__all__ = ["REMOVED", "Wrong", "check_shape", "fields_of", "from_text", "hint_at", "leaves"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SCOPE_PATH = re.compile(SCOPE_PATH)


REMOVED = {
    "limits.beat_seconds": "it follows from limits.lease_seconds",
    "limits.sweep_seconds": "it follows from limits.lease_seconds",
}
"""The paths of keys that earlier versions read, each with the reason for its removal. A file with such a key is
accepted: the key is ignored, and a note reports it."""


class Wrong(Exception):
    """An error in one source, to which the caller adds the source's name. The message is always one line, also when a
    key contains line breaks."""

    def __init__(self, text: str) -> None:
        super().__init__("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text))


def _plain(hint: Any) -> Any:  # Any: type hints have no type of their own
    """Return the type hint without None and annotations."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return _plain(next(choice for choice in get_args(hint) if choice is not type(None)))
    return hint


def fields_of(hint: Any) -> dict[str, Any] | None:  # Any: as above
    """Return the type hints of a section's keys; None for a type that is not a section."""
    plain = _plain(hint)
    if isinstance(plain, type) and issubclass(plain, msgspec.Struct):
        return {field.name: field.type for field in msgspec.structs.fields(plain)}
    return None


def _entry(hint: Any) -> Any:  # Any: as above
    """Return the type hint of the values in a table whose keys are free names; None for other types."""
    plain = _plain(hint)
    return get_args(plain)[1] if get_origin(plain) is dict else None


def _key_pattern(hint: Any) -> re.Pattern[str]:  # Any: as above
    """Return the pattern for the keys of a table whose keys are free names."""
    return _SCOPE_PATH if get_args(_plain(hint))[0] == ScopePath else _NAME


def _rule(hint: Any) -> str:  # Any: as above
    """Return a description of the keys that are accepted in a table whose keys are free names."""
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
        raise Wrong(f"{path}: {key!r} is not a valid name; {_rule(hint)}")


def check_shape(value: object, hint: Any, path: str) -> None:  # Any: a type hint
    """Refuse unknown keys, unknown choices, and other values in place of a table or a list. msgspec later checks
    everything else."""
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
    elif get_origin(wanted) in (list, frozenset):
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
            raise Wrong(f"the value is not a valid {plain.__name__}") from None
        example = '["a", "b"]' if get_origin(plain) is list else '{"key": "value"}'
        raise Wrong(f"the value is not valid JSON; write it as {example}") from None  # the value may be secret
