"""Generates the machine-readable form of PROTOCOL.md from the structs: JSON Schema 2020-12, OpenAPI 3.1 and TypeScript
types.

`generate` makes the three files of `protocol/schema` and the types of the TypeScript client, all of them committed;
`python -m threadcast.api.schema` writes them, `--check` compares them, and a test does the same. The server does not
read these files: its structs decode and refuse bodies, and the files describe the structs for others. Do not edit the
files by hand.
"""

from pathlib import Path

import msgspec

from threadcast.api.schema.openapi import openapi_document
from threadcast.api.schema.shapes import commands_schema, events_schema
from threadcast.api.schema.typescript import typescript
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["RENEW", "commands_schema", "events_schema", "generate", "openapi_document", "outdated"]

RENEW = "python -m threadcast.api.schema"
"""The command that writes the files again."""

_ROOT = Path(__file__).resolve().parents[4]
"""The root of the repository. An installed package does not contain the files."""

DOCUMENTS = _ROOT / "protocol" / "schema"
_TYPES = _ROOT / "web" / "client" / "src" / "types.ts"


def generate() -> dict[Path, str]:
    """Return the text of each file by its path. The same structs give the same text, byte for byte."""
    documents = {
        "events.schema.json": events_schema(),
        "commands.schema.json": commands_schema(),
        "openapi.json": openapi_document(),
    }
    texts = {DOCUMENTS / name: _text(document) for name, document in documents.items()}
    return {**texts, _TYPES: typescript(documents["openapi.json"]["components"]["schemas"])}


def outdated() -> list[Path]:
    """Return the paths of the files that are missing or differ from the structs."""
    return [path for path, text in generate().items() if not path.exists() or path.read_text("utf-8") != text]


def _text(document: JsonObject) -> str:
    return msgspec.json.format(msgspec.json.encode(_flowing(document), order="sorted"), indent=2).decode() + "\n"


def _flowing(value: object) -> object:
    """Return the schema with each description on one line, because Python 3.13 began to strip the indentation of
    docstrings."""
    match value:
        case dict():
            return {
                key: " ".join(inner.split()) if key == "description" and isinstance(inner, str) else _flowing(inner)
                for key, inner in value.items()
            }
        case list():
            return [_flowing(inner) for inner in value]
    return value
