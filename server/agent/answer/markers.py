"""Markers in an answer's text: `SUGGESTED_VALUES:`, or the word of a payload type, followed by JSON (PAY-3, PAY-5,
PAY-6).

Models are told to write them at the beginning of a line; people must not see them. The JSON ends where it ends, strings
and escapes respected, because a JSON decoder finds that out; a code fence around it goes with it. What cannot be read,
or is not what its marker promises, stays in the text, untouched.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from protocol.bodies import read_json
from protocol.messages import JsonObject
from server.agent.place.payload_types import Action

__all__ = ["Accepts", "Found", "cut_out", "suggested_actions", "suggested_values"]

SUGGESTIONS_MAX_COUNT = 20
"""More buttons under one answer nobody reads."""

LABEL_MAX_CHARACTERS = 200

Accepts = Callable[[object], bool]
"""Is this value what the marker before it promises?"""

_decoder = json.JSONDecoder()
_FENCE_END = re.compile(r"\s*```[ \t]*")


class Found(NamedTuple):
    marker: str
    value: object


def cut_out(text: str, markers: Mapping[str, Accepts]) -> tuple[str, list[Found]]:
    """The text without each `MARKER: JSON` whose value is accepted, and the values, in order."""
    if not any(f"{marker}:" in text for marker in markers):
        return text, []
    words = "|".join(re.escape(marker) for marker in markers)
    found: list[Found] = []
    kept: list[str] = []
    at = 0
    for match in re.finditer(rf"(?m)^[ \t]*({words}):\s*(```\w*\s*)?", text):
        if match.start() < at:
            continue
        try:
            _, end = _decoder.raw_decode(text, match.end())
            value: object = read_json(text[match.end() : end])  # strict: no NaN, no half of a character
        except (ValueError, RecursionError):
            continue
        if not markers[match[1]](value):
            continue
        found.append(Found(match[1], value))
        kept.append(text[at : match.start()])
        closing = _FENCE_END.match(text, end) if match[2] else None
        at = closing.end() if closing else end
    kept.append(text[at:])
    return (_joined(kept) if found else text), found


def _joined(pieces: list[str]) -> str:
    """What is left, without the holes."""
    text = pieces[0]
    for piece in pieces[1:]:
        left, right = text.rstrip(), piece.lstrip()
        gap = text[len(left) :] + piece[: len(piece) - len(right)]
        text = left + ("\n\n" if gap.count("\n") > 2 else "\n") + right
    return text.strip()


def suggested_values(found: list[object]) -> list[JsonObject]:
    """`{label, value}` of each; a bare string is both."""
    values: list[JsonObject] = []
    for item in _flat(found):
        if isinstance(item, str):
            values.append({"label": item[:LABEL_MAX_CHARACTERS], "value": item})
        elif isinstance(item, dict) and isinstance(item.get("label"), str) and "value" in item:
            values.append({"label": item["label"][:LABEL_MAX_CHARACTERS], "value": item["value"]})
    return values[:SUGGESTIONS_MAX_COUNT]


def suggested_actions(found: list[object], declared: Mapping[str, Action]) -> tuple[list[JsonObject], int]:
    """`{label, action, handler}` of each that is declared, its handler as declared; and how many are not."""
    actions: list[JsonObject] = []
    dropped_count = 0
    for item in _flat(found):
        word = item.get("action") if isinstance(item, dict) else None
        action = declared.get(word) if isinstance(word, str) else None
        label = (item.get("label") or action.label) if isinstance(item, dict) and action is not None else None
        if action is None or not isinstance(label, str) or not label:
            dropped_count += 1
            continue
        actions.append({"label": label[:LABEL_MAX_CHARACTERS], "action": action.action, "handler": action.handler})
    return actions[:SUGGESTIONS_MAX_COUNT], dropped_count


def _flat(found: list[object]) -> list[object]:
    return [item for value in found for item in (value if isinstance(value, list) else [value])]
