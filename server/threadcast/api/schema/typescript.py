"""Writes the components of the OpenAPI document as TypeScript interfaces, for `web/client`.

`python -m threadcast.api.schema` writes them with the other generated files, and the same check compares them, so the
client's types cannot differ from the server's structs. A key that may be absent is optional; descriptions become
comments. Only the forms of schema that our structs produce are supported.
"""

import json

from threadcast_protocol.wire.messages import JsonObject

__all__ = ["typescript"]

_HEAD = """\
// Generated from the server's own structs by `python -m threadcast.api.schema`. Not edited by hand.

/** Any JSON object. */
export type JsonObject = { [key: string]: unknown };
"""

_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def typescript(components: JsonObject) -> str:
    """Return a module with one exported type for each schema, sorted by name.

    Raises:
        NotImplementedError: the function does not support this form of schema.
    """
    return "\n".join([_HEAD, *(_declaration(name, components[name]) for name in sorted(components))])


def _declaration(name: str, schema: JsonObject) -> str:
    comment = _comment(schema, "")
    if "properties" in schema and "anyOf" in schema:
        return f"{comment}export type {name} = {_object(schema, '')} & ({_type({'anyOf': schema['anyOf']}, '')});\n"
    if schema.get("type") == "object" and schema.get("properties"):
        return f"{comment}export interface {name} {_object(schema, '')}\n"
    return f"{comment}export type {name} = {_type(schema, '')};\n"


def _object(schema: JsonObject, indent: str) -> str:
    required = set(schema.get("required", ()))
    lines = ["{"]
    for key, value in schema["properties"].items():
        mark = "" if key in required else "?"
        lines.append(f"{_comment(value, indent + '  ')}{indent}  {key}{mark}: {_type(value, indent + '  ')};")
    return "\n".join([*lines, f"{indent}}}"])


def _type(schema: JsonObject, indent: str) -> str:
    match schema:
        case {"$ref": str(ref)}:
            return ref.rpartition("/")[2]
        case {"type": "object", "properties": dict()} if schema["properties"]:
            # `oneOf`, `allOf` and `not` beside properties restrict the values; the TypeScript type omits this
            # restriction.
            return _object(schema, indent)
        case {"enum": list(values)}:
            return " | ".join(json.dumps(value) for value in values)
        case {"const": value}:
            return json.dumps(value)
        case {"anyOf": list(ways)} | {"oneOf": list(ways)}:
            # The types are in the schema's order, without repetitions, since a const adds nothing to its type.
            return " | ".join(dict.fromkeys(_type(way, indent) for way in ways))
        case {"allOf": list(parts)}:
            # A condition, or properties without a type, restrict the values; the TypeScript type omits this
            # restriction.
            typed = [part for part in parts if part.keys() & {"$ref", "type", "anyOf", "oneOf"}]
            rest = {key: value for key, value in schema.items() if key != "allOf"}
            return " & ".join(_type(part, indent) for part in typed) if typed else _type(rest, indent)
        case {"type": list(kinds)}:
            return " | ".join(_type({**schema, "type": kind}, indent) for kind in kinds)
        case {"type": "array"}:
            inner = _type(schema["items"], indent) if "items" in schema else "unknown"
            return f"({inner})[]" if " " in inner else f"{inner}[]"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"{{ [key: string]: {_type(values, indent)} }}"
        case {"type": "object"}:
            return "JsonObject"
        case {"type": str(kind)} if kind in _PLAIN:
            return _PLAIN[kind]
        case _ if not (set(schema) - {"description", "default", "title"}):
            return "unknown"
    raise NotImplementedError(f"a schema of this form has no type: {schema}")


def _comment(schema: JsonObject, indent: str) -> str:
    text = schema.get("description")
    return f"{indent}/** {' '.join(text.split()).replace('*/', '* /')} */\n" if isinstance(text, str) else ""
