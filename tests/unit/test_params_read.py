"""PROTOCOL has a table of the parameters that no code reads yet; the table is complete and lists no other
parameters."""

import re
from pathlib import Path

from threadcast_protocol.wire.thread import ThreadPatch

ROOT = Path(__file__).parents[2]


def is_read(key: str, code: str) -> bool:
    """Return whether code reads a parameter: by name from a run's layers of parameters, or as a field of the thread or
    of a model call."""
    by_name = rf'\b(?<!query_params\.)(?:param|get|pop)\("{key}"|\beffective\(\w+, "{key}"'
    return re.search(rf"\b(?:thread|params)\.{key}\b|{by_name}", code) is not None


def kept_but_unread() -> set[str]:
    """Return the first column of the table in PROTOCOL §16."""
    page = (ROOT / "protocol/PROTOCOL.md").read_text()
    table = page.partition("Accepted and kept, not read by the server yet")[2].partition("\n## ")[0]
    return {key for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)}


def test_the_protocol_names_every_parameter_that_is_kept_and_read_by_nobody() -> None:
    files = [path for room in ("server", "protocol") for path in (ROOT / room).rglob("*.py")]
    code = "\n".join(path.read_text() for path in files if "console" not in path.parts)  # a passage about messages
    unread = {key for key in ThreadPatch.__struct_fields__ if not is_read(key, code)}
    assert kept_but_unread() == unread
