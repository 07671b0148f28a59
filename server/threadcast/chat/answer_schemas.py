"""Checks the JSON Schemas of questions, and checks answers against these schemas, with a bounded amount of work
(PROTOCOL §11).

Schemas come from agents or tools, and answers come from people. The chat's other commands wait while an answer is
checked. Therefore keywords whose work cannot be bounded are refused: regular expressions, references that leave the
schema's definitions, and keywords that walk the schema again for each value. Each evaluation of another keyword costs
one step of a budget, or one step per element if the keyword's value is a list.
"""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any

import msgspec

from threadcast_protocol.wire.messages import JsonObject

__all__ = ["SCHEMA_MAX_BYTES", "SCHEMA_MAX_DEPTH", "check_schema", "problem_of"]

SCHEMA_MAX_BYTES = 16_384
"""The maximum bytes of a schema as JSON. Every snapshot of the chat contains the schema while the question is open."""

SCHEMA_MAX_DEPTH = 32
"""The maximum nesting of a schema. Schemas of forms have fewer than ten levels."""

STEPS_MAX = 10_000
"""The maximum number of steps for the check of one answer. This number of steps takes at most 0.1 s. A form of 50
fields needs 300 steps."""

PROBLEM_MAX_CHARACTERS = 300
"""The maximum length of a message of the library `jsonschema` that is shown. Longer messages repeat the answer."""

_REFUSED = (
    "pattern",
    "patternProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$anchor",
    "$id",
)
"""Keywords that a schema may not use. Regular expressions can take exponential time. `unevaluated…` follows references
without a bound. The other keywords hide which schema a reference means."""

_NAMED = ("properties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = ("items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else")
_DEFINITIONS = ("#/$defs/", "#/definitions/")

_canonical = msgspec.json.Encoder(order="sorted")
_steps_left: ContextVar[int] = ContextVar("steps_left")


class _TooMuchWork(Exception):
    """The answer would need more than STEPS_MAX steps."""


def check_schema(schema: JsonObject) -> None:
    """Raise ValueError if `schema` is not a JSON Schema (2020-12), is too large, or uses a keyword that questions
    cannot have."""
    from jsonschema import Draft202012Validator, SchemaError  # this import takes 0.1 s and is needed only here

    if (size := len(msgspec.json.encode(schema))) > SCHEMA_MAX_BYTES:
        raise ValueError(f"the schema has {size} bytes of JSON; a question's schema has at most {SCHEMA_MAX_BYTES}")
    _check_keywords(schema, 1)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as wrong:
        raise ValueError(f"the schema is not valid: {wrong.message} (at {wrong.json_path})") from None


def _check_keywords(schema: object, depth: int) -> None:
    if depth > SCHEMA_MAX_DEPTH:
        raise ValueError(f"the schema is nested more than {SCHEMA_MAX_DEPTH} levels deep")
    if not isinstance(schema, dict):
        return  # `schema` is true or false, or no schema at all, which the meta-schema refuses
    for name in _REFUSED:
        if name in schema:
            raise ValueError(f"the schema uses {name}, which a question's schema may not have")
    if depth > 1 and "$schema" in schema:
        raise ValueError("the schema uses $schema inside; only the whole schema may have it")
    ref = schema.get("$ref")
    if ref is not None and (not isinstance(ref, str) or not ref.startswith(_DEFINITIONS) or ref.count("/") != 2):
        raise ValueError(f"the schema has the $ref {ref!r}; only #/$defs/NAME is allowed")
    for name in _NAMED:
        inner = schema.get(name)
        for each in inner.values() if isinstance(inner, dict) else ():
            _check_keywords(each, depth + 1)
    for name in _LISTED:
        listed = schema.get(name)
        for each in listed if isinstance(listed, list) else ():
            _check_keywords(each, depth + 1)
    for name in _SINGLE:
        _check_keywords(schema.get(name), depth + 1)


def problem_of(schema: JsonObject, value: object) -> str:
    """Return a text that says where and why `value` violates `schema`, or '' if the value is valid. `check_schema` must
    have accepted the schema."""
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    root = {name: each for name, each in schema.items() if name != "$schema"}  # it would select another validator
    token = _steps_left.set(STEPS_MAX)
    try:
        wrong = next(_validator()(root, registry=Registry()).iter_errors(value), None)
    except _TooMuchWork:
        return "the answer takes too long to check; send a smaller one"
    except (Unresolvable, RecursionError, ArithmeticError) as trouble:
        return f"the answer cannot be checked ({type(trouble).__name__})"
    finally:
        _steps_left.reset(token)
    if wrong is None:
        return ""
    pointer = "".join(f"/{part}" for part in wrong.absolute_path)
    said = (
        wrong.message if len(wrong.message) <= PROBLEM_MAX_CHARACTERS else f"the answer does not fit {wrong.validator}"
    )
    return f"{said} (at {pointer})" if pointer else said


@cache
def _validator() -> Any:  # Any: jsonschema has no types
    """Return a validator class that counts the keywords that it evaluates."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    known = {name: check for name, check in Draft202012Validator.VALIDATORS.items() if name not in _REFUSED}
    known["uniqueItems"] = _unique_items
    counted = {name: _counted(check) for name, check in known.items()}
    return extend(Draft202012Validator, {**dict.fromkeys(_REFUSED, _nothing), **counted})


def _counted(check: Callable[..., Any]) -> Callable[..., Any]:  # Any: a keyword's function returns errors or None
    def run(validator: object, value: object, instance: object, schema: object) -> Iterator[Any]:
        left = _steps_left.get() - (len(value) if isinstance(value, list) else 1)
        if left < 0:
            raise _TooMuchWork
        _steps_left.set(left)
        yield from check(validator, value, instance, schema) or ()

    return run


def _unique_items(_: object, value: object, instance: object, __: object) -> Iterator[Any]:
    """Yield an error if two items are the same JSON. This function replaces the check of the library, which compares
    each pair of items."""
    from jsonschema import ValidationError

    if value and isinstance(instance, list) and len({_canonical.encode(item) for item in instance}) < len(instance):
        yield ValidationError("two items are the same")


def _nothing(*_: object) -> tuple[()]:
    return ()
