"""Finds in a user's message the tools that `demo/tools` calls, and summarises their results. Pure.

A line `call NAME {json}` calls any tool with exactly these arguments (several lines make several calls; the text after
the name is passed on unchanged, so that a test can send invalid arguments). Without such a line, the words of the
message select offered tools: the clock, the calculator, the note tool and the count-down.
"""

import re
from collections.abc import Container
from typing import NamedTuple

import msgspec

from threadcast_protocol.wire.messages import Message, text_of

__all__ = ["WantedCall", "summary", "wanted_calls"]

_DIRECTIVE = re.compile(r"^[ \t]*call[ \t]+([A-Za-z0-9_-]{1,64})[ \t]*([{\[\"].*)?$", re.MULTILINE)
_TIME = re.compile(r"\b(clock|time|date|today|now)\b", re.IGNORECASE)
_SUM = re.compile(r"(?<![-(\d.])[-(]*+\.?\d[\d.]*+(?:[\s()]*+[-+*/%^]++[\s()]*+\d[\d.]*+)++[)]*+")
"""Matches a sum in time proportional to the text: no match begins within a number or within brackets, and no part is
tried at two lengths. Otherwise a message of 8,000 digits would take two seconds, and longer messages hours."""

_NOTE = re.compile(r"\b(write|note)\b", re.IGNORECASE)
_COUNT_DOWN = re.compile(r"\bcount\s*-?down\b(?:\s+from)?\s*(\d{1,2})?", re.IGNORECASE)

SUMMARY_MAX_CHARS = 2_000
"""Maximum characters of one tool's result in the summary."""


class WantedCall(NamedTuple):
    """A call to make. `arguments` is JSON text, or the unchanged text of a directive."""

    name: str
    arguments: str


def wanted_calls(text: str, offered: Container[str]) -> list[WantedCall]:
    """Return the calls that `text` asks for, in the order of the text. A directive may name a tool that is not
    offered."""
    directives = [WantedCall(match[1], (match[2] or "").rstrip()) for match in _DIRECTIVE.finditer(text)]
    if directives:
        return directives
    found: list[tuple[int, str, dict[str, object]]] = []
    if match := _TIME.search(text):
        found.append((match.start(), "clock", {}))
    if match := _SUM.search(text):
        found.append((match.start(), "calculator", {"expression": match[0].strip()}))
    if match := _NOTE.search(text):
        found.append((match.start(), "write_note", {"name": "note.md", "text": text}))
    if match := _COUNT_DOWN.search(text):
        found.append((match.start(), "countdown", {"start": int(match[1] or 5)}))
    return [
        WantedCall(name, msgspec.json.encode(arguments).decode())
        for _, name, arguments in sorted(found, key=lambda item: item[0])
        if name in offered
    ]


def summary(answered: list[Message]) -> str:
    """Summarise the tools' results, from the assistant and tool messages since the user's last message."""
    names = {call.id: call.function.name for message in answered for call in message.tool_calls}
    lines = [
        f"- {names.get(message.tool_call_id or '', 'a tool')}"
        f"{' failed' if message.tool_failed else ''}: {text_of(message.content)[:SUMMARY_MAX_CHARS]}"
        for message in answered
        if message.role == "tool"
    ]
    if not lines:
        return (
            "I call tools. Ask me for the time, give me a sum such as 6 * 7, let me write a note, "
            'or say it exactly in a line of its own: call calculator {"expression": "6 * 7"}'
        )
    return "\n".join(["The tools have answered.", "", *lines])
