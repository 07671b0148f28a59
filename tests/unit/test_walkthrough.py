"""The functions that `docs/walkthrough.md` names exist, and a real server calls them in that order.

The server runs under the profiler of `tests/support/way.py`.
"""

import ast
import json
import re
from functools import cache
from pathlib import Path

import anyio
import pytest

from tests.support.reader import watching
from tests.support.server import Process, command, user_message

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/walkthrough.md"
ANCHORS = re.findall(r"`((?:server|protocol)/[\w/]+\.py: [\w.]+)`", PAGE.read_text())
FEWEST = 30
"""The page names at least this many functions; if fewer are found, their spelling has changed and the pattern misses
them."""

CALLS_MOST, FILES_MOST = 58, 30
"""Maximum number of functions that hand the message on, and of their files. Measured: 56 to 58 in 29 or 30 files, since
an entry reaches the relay with or without a task of its own."""


@cache
def functions_in(path: Path) -> frozenset[str]:
    """Return the functions and methods of a file by their qualified names."""
    return frozenset(_functions(ast.parse(path.read_text("utf-8")), ""))


def _functions(node: ast.AST, prefix: str) -> list[str]:
    found: list[str] = []
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(prefix + each.name)
        elif isinstance(each, ast.ClassDef):
            found += _functions(each, f"{prefix}{each.name}.")
    return found


def test_every_function_that_the_page_names_exists() -> None:
    assert len(ANCHORS) >= FEWEST
    for anchor in ANCHORS:
        path, _, function = anchor.partition(": ")
        assert (ROOT / path).is_file(), f"docs/walkthrough.md names {path}, which does not exist"
        assert function in functions_in(ROOT / path), f"docs/walkthrough.md names {anchor}, which does not exist"


def first_missing(calls: list[str]) -> str | None:
    """Return the first anchor that is not called after the anchors before it."""
    remaining = iter(calls)
    return next((anchor for anchor in ANCHORS if anchor not in remaining), None)


@pytest.mark.anyio
async def test_a_message_passes_the_functions_of_the_page_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    arguments = ["serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    process = Process(arguments, tmp_path / "log", program=["tests.support.way", str(file)])
    try:
        await process.ready()
        for chat_id in ("first", "second"):  # the first message also loads scripts and providers
            async with watching(process.url, chat_id) as watcher:
                await command(process.url, chat_id, user_message("a", "hello there"))
                await watcher.at_rest()
        await process.stop()
    finally:
        await anyio.to_thread.run_sync(process.close)
    recorded = json.loads(file.read_text().splitlines()[1])
    missing = first_missing(recorded["calls"])
    assert missing is None, f"{missing} is not called after the functions that the page names before it"
    way = recorded["way"]
    files = {name.partition(":")[0] for name in way}
    assert len(way) <= CALLS_MOST and len(files) <= FILES_MOST, "\n".join(way)
