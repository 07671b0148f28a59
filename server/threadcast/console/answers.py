"""Shows a question of an agent or a tool in a terminal, and reads the person's line as the answer (PROTOCOL §11).

Pure. The server checks the answer, also against the question's schema. If the server refuses the answer, its message
describes the mismatch.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from threadcast_protocol.wire.tool_names import mcp_server_of

__all__ = ["REJECT", "answer_of", "lines_of"]

Json: TypeAlias = Mapping[str, Any]  # Any: a pause reason as a JSON object

REJECT = "/reject"
"""The line that rejects a question."""

SCHEMA_MAX_CHARACTERS = 2_000
"""Maximum characters of a schema that are shown. The schema of a usual form is shorter."""


def lines_of(reason: Json) -> list[str]:
    """Return the lines that ask the question of a pause reason. The first line names the tool or server that asks, so
    that its text is not mistaken for the assistant's."""
    question = _question_of(reason)
    tool_name = str(reason.get("tool_name", ""))
    server = mcp_server_of(tool_name)
    by = f"the MCP server {server} asks: " if server else f"the tool {tool_name} asks: " if tool_name else ""
    lines = [f"? {by}{question['text']}"]
    options, schema = question.get("options", []), question.get("schema")
    if options:
        lines += [f"  {number}) {option}" for number, option in enumerate(options, 1)]
        lines.append(f"(type a number or one of these; {REJECT} refuses to answer)")
    elif schema is not None:
        shown = msgspec.json.encode(schema).decode()
        cut = shown if len(shown) <= SCHEMA_MAX_CHARACTERS else shown[:SCHEMA_MAX_CHARACTERS] + "…"
        lines.append(f"(type JSON that fits {cut}; {REJECT} refuses to answer)")
    else:
        lines.append(f"(type your answer; {REJECT} refuses to answer)")
    return lines


def answer_of(reason: Json, line: str) -> object:
    """Return the answer that a person means by `line`. Raises ValueError if the line cannot be an answer; the message
    says what to type."""
    question = _question_of(reason)
    options, schema = question.get("options", []), question.get("schema")
    if options:
        if line in options:
            return line
        if line.isdecimal() and 1 <= int(line) <= len(options):
            return options[int(line) - 1]
        raise ValueError(f"please type a number from 1 to {len(options)}, or one of the options")
    if schema is None or (schema.get("type") == "string" and not line.startswith('"')):
        return line
    try:
        return msgspec.json.decode(line.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as wrong:
        raise ValueError(f"please type JSON: {wrong}") from None


def _question_of(reason: Json) -> Json:
    """Return the question of a pause reason. If a newer server sent the question in another form, only its beginning is
    returned."""
    question = reason.get("question")
    return question if isinstance(question, Mapping) and "text" in question else {"text": reason.get("command", "")}
