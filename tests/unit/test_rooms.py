"""Which room may import which: the arrows of docs/design.md, read from the source.

A border that is crossed is named with its file and line. Imports inside functions and under TYPE_CHECKING count too.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MAY_IMPORT = {
    "protocol": {"protocol", "msgspec"},
    "threadcast": {"threadcast", "protocol", "msgspec", "anyio", "httpx2"},
}
"""Besides the standard library."""

ONLY_THERE = {"httpx2": {"threadcast/wire.py", "threadcast/client.py"}}
"""Within `threadcast`: the network is one file's affair, and `client.py` names the types of its arguments."""


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """The top-level packages that a file imports, each with its line."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name.partition(".")[0], node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path.name}:{node.lineno} imports by a relative name"
            yield (node.module or "").partition(".")[0], node.lineno


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_what_it_may_and_nothing_else(room: str) -> None:
    files = list((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        for name, line in imports_of(path):
            is_allowed = name in MAY_IMPORT[room] or name in sys.stdlib_module_names
            assert is_allowed, f"{path.relative_to(ROOT)}:{line} imports {name}"


def test_the_protocol_knows_no_clock_no_network_and_no_tasks() -> None:
    forbidden = {"asyncio", "socket", "ssl", "http", "urllib", "threading", "subprocess", "time", "random"}
    for path in (ROOT / "protocol").rglob("*.py"):
        for name, line in imports_of(path):
            assert name not in forbidden, f"{path.relative_to(ROOT)}:{line} imports {name}"


def test_of_the_client_two_files_know_the_network() -> None:
    for path in (ROOT / "threadcast").rglob("*.py"):
        found = {name for name, _ in imports_of(path)}
        for name, files in ONLY_THERE.items():
            assert name not in found or str(path.relative_to(ROOT)) in files, f"{path.name} imports {name}"


def test_of_the_server_only_the_command_line_uses_the_client() -> None:
    for path in (ROOT / "server").rglob("*.py"):
        if "threadcast" in {name for name, _ in imports_of(path)}:
            assert path.is_relative_to(ROOT / "server" / "console"), f"{path.relative_to(ROOT)} imports threadcast"
