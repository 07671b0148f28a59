"""What clients can be shown besides text, and what they can be offered to do: payload types and actions, as data.

The operator registers them (`[payloads.NAME]`, `actions` of a profile), or a file of tools does (`payload_type`); which
of them hold in a place is the profile's business, how they are found in a model's text that of `final.py`. Data is
checked against JSON Schema (2020-12) by `jsonschema`: the reference, and the only one that reads what msgspec writes.
"""

import re
from collections.abc import Callable
from string import Formatter
from typing import Literal

import msgspec

from protocol.messages import JsonObject
from server.foreign import pass_on
from server.tools.traits import schema_of

__all__ = [
    "RESERVED_MARKERS",
    "SUMMARY_MAX_CHARACTERS",
    "Action",
    "PayloadType",
    "check_type",
    "payload_type",
    "preview_problem",
    "problem_with",
    "summary_of",
]

SUMMARY_MAX_CHARACTERS = 200
"""One line of a manifest."""

VALUE_MAX_CHARACTERS = 60
"""Of one value inside a summary, and of one value in a sentence about a problem."""

RESERVED_MARKERS = frozenset({"SUGGESTED_VALUES", "SUGGESTED_ACTIONS"})

_MARKER = re.compile(r"[A-Z][A-Z0-9_]*")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class PayloadType(msgspec.Struct, frozen=True, kw_only=True):
    """`schema` is JSON Schema of the data (of a preview: of its `object`), {} for any; `marker` the word before it in a
    model's text ('' when only tools make it), `summary` a template over the data's fields, such as "{title}: {count}
    rows" (PAY-1). `summarize` takes its place where Python says it."""

    name: str
    description: str = ""
    schema: JsonObject = {}
    marker: str = ""
    summary: str = ""
    summarize: Callable[[JsonObject], str] | None = None


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What a button under an answer may do (PAY-6)."""

    action: str
    label: str = ""
    description: str = ""
    handler: Literal["client", "server"] = "client"


def payload_type(
    *,
    name: str,
    model: type[msgspec.Struct],
    description: str = "",
    marker: str = "",
    summary: str | Callable[[JsonObject], str] = "",
) -> PayloadType:
    """A payload type whose schema is a msgspec struct's; a file of tools registers it by binding it to a name."""
    return PayloadType(
        name=name,
        description=description or (model.__doc__ or "").strip(),
        schema=schema_of(model),
        marker=marker,
        summary=summary if isinstance(summary, str) else "",
        summarize=None if isinstance(summary, str) else summary,
    )


def check_type(kind: PayloadType) -> None:
    """Raises ValueError: a sentence beginning with the key that cannot be."""
    from jsonschema import Draft202012Validator, SchemaError  # 0.1 s, and only where a type has a schema

    if kind.marker and not _MARKER.fullmatch(kind.marker):
        raise ValueError(f"marker: {kind.marker!r} must be capital letters, digits and _, such as CHART_DATA")
    if kind.marker in RESERVED_MARKERS:
        raise ValueError(f"marker: {kind.marker} is the server's own; choose another word")
    if kind.schema:
        if kind.schema.get("type") != "object":
            raise ValueError('schema: must be of an object: type = "object"')
        try:
            Draft202012Validator.check_schema(kind.schema)
        except SchemaError as wrong:
            raise ValueError(f"schema: {wrong.message} (at {wrong.json_path})") from None
        if away := next((ref for ref in _references(kind.schema) if not ref.startswith("#")), None):
            raise ValueError(f"schema: $ref {away!r} lies elsewhere; nothing is fetched, so use $defs and #/$defs/NAME")
    known = kind.schema.get("properties")
    try:
        parts = list(Formatter().parse(kind.summary))
    except ValueError as wrong:
        raise ValueError(f"summary: {wrong}") from None
    for _, field, spec, conversion in parts:
        if field is None:
            continue
        if not _FIELD.fullmatch(field) or spec or conversion:
            raise ValueError(f"summary: {{{field}}} must be the plain name of a field, such as {{title}}")
        if isinstance(known, dict) and field not in known:
            raise ValueError(f"summary: the schema has no field {field!r}; it has {', '.join(known) or 'none'}")


def _references(schema: object) -> list[str]:
    if isinstance(schema, list):
        return [ref for item in schema for ref in _references(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return own + [ref for item in schema.values() for ref in _references(item)]


def preview_problem(kind: PayloadType | None, name: str, schema: JsonObject, shown: object) -> str:
    """Return where and why the object of a preview breaks the schema of its type `kind`, or the schema that its tool or
    its commit tool names; '' when it breaks neither. `name` is the type's."""
    problem = problem_with(kind, shown) if kind is not None else ""
    return problem or (problem_with(PayloadType(name=name, schema=schema), shown) if schema else "")


def problem_with(kind: PayloadType, data: object) -> str:
    """Where and why `data` breaks the type's schema; '' when it does not."""
    if not isinstance(data, dict):
        return f"the data of {kind.name} must be a JSON object"
    if not kind.schema:
        return ""
    from jsonschema import Draft202012Validator
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        wrong = next(Draft202012Validator(kind.schema, registry=Registry()).iter_errors(data), None)
    except (Unresolvable, RecursionError):
        return f"the schema of {kind.name} cannot be followed"
    if wrong is None:
        return ""
    place = "".join(f"/{part}" for part in wrong.absolute_path) or "/"
    return f"{wrong.message if len(wrong.message) < 300 else f'does not fit {wrong.validator!r}'} (at {place})"


def summary_of(kind: PayloadType | None, name: str, data: JsonObject) -> str:
    """One line, never empty (PAY-2): the summariser's, else the type with the names of the fields."""
    said = ""
    if kind is not None and kind.summarize is not None:
        try:
            said = kind.summarize(data)
        except BaseException as wrong:  # the boundary of a foreign function; the payload is worth more than its line
            pass_on(wrong)
            said = ""
    elif kind is not None and kind.summary:
        shown = {field: _short(data.get(field)) for _, field, _, _ in Formatter().parse(kind.summary) if field}
        said = kind.summary.format_map(shown) if any(shown.values()) else ""
    said = " ".join(said.split()) if isinstance(said, str) else ""
    fields = ", ".join(data)
    return (said or (f"{name}: {fields}" if fields else name) or "data")[:SUMMARY_MAX_CHARACTERS]


def _short(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text[:VALUE_MAX_CHARACTERS]
