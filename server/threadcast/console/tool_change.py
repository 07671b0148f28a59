"""Describes, in lines for a terminal, how a tool differs from the definition that a person has allowed permanently
(PROTOCOL §11)."""

import difflib
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from threadcast.console.pen import short

__all__ = ["changed_tool"]

Json: TypeAlias = Mapping[str, Any]  # Any: events as JSON objects

LINES_MAX = 40
"""Maximum lines of a difference: about a screenful. The page shows the rest."""

LINE_MAX_CHARS = 200

_WHY = {
    "changed": "has changed since you always allowed it",
    "new": "appeared after you allowed all tools of its server",
    "unrecorded": "was allowed in an earlier version, which did not record what the tool was",
}


def changed_tool(name: str, change: Json) -> str:
    """Return the reason why the tool `name` needs an approval again, and the lines in which its definition differs. If
    no earlier definition is known, the lines show the present definition."""
    lines = [line for line in _difference(change) if line.strip()]
    hidden = len(lines) - LINES_MAX
    more = [f"  … {hidden} more lines; open the page to see all"] if hidden > 0 else []
    cut = [f"  {line[0]} {short(line[1:], LINE_MAX_CHARS)}" for line in lines[:LINES_MAX]]
    return "\n".join([f"! {name} {_WHY.get(change.get('kind', ''), _WHY['changed'])}:", *cut, *more])


def _difference(change: Json) -> Iterator[str]:
    before, now = change.get("before"), change.get("now")
    if now is None:
        return iter(["! its present definition is too long to show"])
    if before is None:
        return (f"+{line}" for line in _lines(now))
    parts = difflib.unified_diff(_lines(before), _lines(now), lineterm="", n=0)
    return (line for line in itertools.islice(parts, 2, None) if not line.startswith("@@"))


def _lines(definition: Json) -> list[str]:
    schema = json.dumps(definition.get("input_schema"), indent=2, sort_keys=True, ensure_ascii=False)
    return [*str(definition.get("description", "")).splitlines(), *schema.splitlines()]
