"""Markers in an answer's text: `SUGGESTED_VALUES:` or `SUGGESTED_ACTIONS:` followed by JSON (PAY-5, PAY-6).

Models are told to write them; people must not see them. The JSON ends where it ends, strings and escapes respected,
because a JSON decoder finds that out. What cannot be read stays in the text, untouched.
"""

import json
import re

from protocol.messages import JsonObject

__all__ = ["cut_out", "suggested_actions", "suggested_values"]

SUGGESTIONS_MAX_COUNT = 20
"""More buttons under one answer nobody reads."""

LABEL_MAX_CHARACTERS = 200
HANDLERS = frozenset({"client", "server"})

_decoder = json.JSONDecoder()


def cut_out(text: str, marker: str) -> tuple[str, list[object]]:
    """The text without each `MARKER: JSON`, and the values, in order."""
    values: list[object] = []
    kept: list[str] = []
    at = 0
    for match in re.finditer(rf"(?m)^[ \t]*{re.escape(marker)}:\s*", text):
        if match.start() < at:
            continue
        try:
            value, end = _decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            continue
        values.append(value)
        kept.append(text[at : match.start()])
        at = end
    kept.append(text[at:])
    return ("".join(kept).strip() if values else text), values


def suggested_values(found: list[object]) -> list[JsonObject]:
    """`{label, value}` of each; a bare string is both."""
    values: list[JsonObject] = []
    for item in _flat(found):
        if isinstance(item, str):
            values.append({"label": item[:LABEL_MAX_CHARACTERS], "value": item})
        elif isinstance(item, dict) and isinstance(item.get("label"), str) and "value" in item:
            values.append({"label": item["label"][:LABEL_MAX_CHARACTERS], "value": item["value"]})
    return values[:SUGGESTIONS_MAX_COUNT]


def suggested_actions(found: list[object]) -> list[JsonObject]:
    """`{label, action, handler}` of each that has all three."""
    actions: list[JsonObject] = []
    for item in _flat(found):
        if not isinstance(item, dict) or item.get("handler", "client") not in HANDLERS:
            continue
        label, action = item.get("label"), item.get("action")
        if isinstance(label, str) and isinstance(action, str):
            handler = item.get("handler", "client")
            actions.append({"label": label[:LABEL_MAX_CHARACTERS], "action": action, "handler": handler})
    return actions[:SUGGESTIONS_MAX_COUNT]


def _flat(found: list[object]) -> list[object]:
    return [item for value in found for item in (value if isinstance(value, list) else [value])]
