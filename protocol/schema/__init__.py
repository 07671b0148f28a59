"""The machine-readable half of PROTOCOL.md: JSON Schema 2020-12 and OpenAPI 3.1, generated from the structs.

`generate` makes the three files that lie beside this one and the types of the TypeScript client, all of them committed;
`python -m protocol.schema` writes them, `--check` compares them, and a test does the same. Nothing at run time reads
them: the structs themselves decode and refuse, and the files only tell others what those do. The one rule: they are
never edited by hand.
"""

from pathlib import Path

import msgspec

from protocol.messages import JsonObject
from protocol.schema.openapi import openapi_document
from protocol.schema.shapes import commands_schema, events_schema
from protocol.schema.typescript import typescript

__all__ = ["RENEW", "commands_schema", "events_schema", "generate", "openapi_document", "outdated"]

RENEW = "python -m protocol.schema"
"""The command that writes the files anew."""

_HERE = Path(__file__).parent
_TYPES = _HERE.parents[1] / "web" / "client" / "src" / "types.ts"
"""In a clone; an installed package has no client in TypeScript, and nothing to renew."""


def generate() -> dict[Path, str]:
    """The text of each file. The same structs give the same text, byte for byte."""
    documents = {
        "events.schema.json": events_schema(),
        "commands.schema.json": commands_schema(),
        "openapi.json": openapi_document(),
    }
    texts = {_HERE / name: _text(document) for name, document in documents.items()}
    if _TYPES.parent.is_dir():
        texts[_TYPES] = typescript(documents["openapi.json"]["components"]["schemas"])
    return texts


def outdated() -> list[Path]:
    """The files that are missing or differ from what the structs say."""
    return [path for path, text in generate().items() if not path.exists() or path.read_text("utf-8") != text]


def _text(document: JsonObject) -> str:
    return msgspec.json.format(msgspec.json.encode(_flowing(document), order="sorted"), indent=2).decode() + "\n"


def _flowing(value: object) -> object:
    """The same, with each description on one line: Python 3.13 began to strip the indentation of docstrings."""
    match value:
        case dict():
            return {
                key: " ".join(inner.split()) if key == "description" and isinstance(inner, str) else _flowing(inner)
                for key, inner in value.items()
            }
        case list():
            return [_flowing(inner) for inner in value]
    return value
