"""Reads the suggestions of an answer: values to answer with, and actions (PAY-5, PAY-6). Pure."""

from collections.abc import Mapping

from threadcast.profiles.payload_types import Action
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["suggested_actions", "suggested_values"]

SUGGESTIONS_MAX_COUNT = 20
"""The maximum number of buttons under one answer. People do not read more buttons."""

LABEL_MAX_CHARACTERS = 200


def suggested_values(found: list[object]) -> list[JsonObject]:
    """Return `{label, value}` for each suggested value. If a value is a bare string, the string is also the label."""
    values: list[JsonObject] = []
    for item in _flat(found):
        if isinstance(item, str):
            values.append({"label": item[:LABEL_MAX_CHARACTERS], "value": item})
        elif isinstance(item, dict) and isinstance(item.get("label"), str) and "value" in item:
            values.append({"label": item["label"][:LABEL_MAX_CHARACTERS], "value": item["value"]})
    return values[:SUGGESTIONS_MAX_COUNT]


def suggested_actions(found: list[object], declared: Mapping[str, Action]) -> tuple[list[JsonObject], int]:
    """Return the suggested actions that are declared, each as `{label, action, handler}` with the declared handler. The
    second result is the number of suggestions that were dropped because they are not declared or not valid."""
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
