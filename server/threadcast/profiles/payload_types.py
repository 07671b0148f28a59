"""Payload types, which describe the data that clients show besides text, and the checks of such data.

An operator defines payload types in the settings (`[payloads.NAME]`), or in a file of tools (`payload_type`). Profiles
and scopes name the types that are allowed, and `agent_loop/answer/final.py` finds payloads in a model's text. Data is
checked against JSON Schema (2020-12) by `jsonschema`, the reference implementation; other libraries cannot read the
schemas that msgspec writes.
"""

import re
from collections.abc import Callable
from string import Formatter

import msgspec

from threadcast.base.boundary import pass_on
from threadcast.settings.agent import Action
from threadcast.settings.payloads import Payload
from threadcast.tools.traits import schema_of
from threadcast_protocol.wire.messages import JsonObject

__all__ = [
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
"""The maximum length of a payload's summary, which is one line."""

VALUE_MAX_CHARACTERS = 60
"""The maximum length of a value inside a summary."""

_MARKER = re.compile(r"[A-Z][A-Z0-9_]*")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class PayloadType(Payload, frozen=True, kw_only=True):
    """The settings of a payload type with its name (PAY-1). A file of tools may set the function `summarize`, which
    then makes the summary in place of the template `summary`."""

    name: str
    summarize: Callable[[JsonObject], str] | None = None


def payload_type(
    *,
    name: str,
    model: type[msgspec.Struct],
    description: str = "",
    marker: str = "",
    summary: str | Callable[[JsonObject], str] = "",
) -> PayloadType:
    """Return a payload type with the schema of a msgspec struct. A file of tools registers the type by binding it to a
    name."""
    return PayloadType(
        name=name,
        description=description or (model.__doc__ or "").strip(),
        schema=schema_of(model),
        marker=marker,
        summary=summary if isinstance(summary, str) else "",
        summarize=None if isinstance(summary, str) else summary,
    )


def check_type(kind: PayloadType) -> None:
    """Check a payload type. Raises ValueError; the message begins with the invalid key."""
    from jsonschema import Draft202012Validator, SchemaError  # takes 0.1 s, so it is imported only here

    if kind.marker and not _MARKER.fullmatch(kind.marker):
        raise ValueError(f"marker: {kind.marker!r} must be capital letters, digits and _, such as CHART_DATA")
    if kind.schema:
        if kind.schema.get("type") != "object":
            raise ValueError('schema: must be of an object: type = "object"')
        try:
            Draft202012Validator.check_schema(kind.schema)
        except SchemaError as wrong:
            raise ValueError(f"schema: {wrong.message} (at {wrong.json_path})") from None
        if away := next((ref for ref in _references(kind.schema) if not ref.startswith("#")), None):
            raise ValueError(f"schema: $ref {away!r} is not fetched; use $defs and #/$defs/NAME")
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
    """Return a sentence about where and why the object of a preview violates a schema, which is that of its type `kind`
    or the `schema` of its tool or commit tool; '' if the object is valid. `name` is the name of the type."""
    problem = problem_with(kind, shown) if kind is not None else ""
    return problem or (problem_with(PayloadType(name=name, schema=schema), shown) if schema else "")


def problem_with(kind: PayloadType, data: object) -> str:
    """Return a sentence about where and why `data` violates the type's schema; '' when `data` is valid."""
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
        return f"the schema of {kind.name} has a reference that cannot be resolved"
    if wrong is None:
        return ""
    pointer = "".join(f"/{part}" for part in wrong.absolute_path) or "/"
    return f"{wrong.message if len(wrong.message) < 300 else f'does not fit {wrong.validator!r}'} (at {pointer})"


def summary_of(kind: PayloadType | None, name: str, data: JsonObject) -> str:
    """Return the summary of a payload as one line that is never empty (PAY-2). The type's function or template makes
    the summary; without them, the summary names the type and the fields."""
    said = ""
    if kind is not None and kind.summarize is not None:
        try:
            said = kind.summarize(data)
        except BaseException as wrong:  # the boundary of an author's function
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
