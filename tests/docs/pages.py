"""The fenced blocks of README.md and docs/*.md, and the reasons for the few commands that no test runs."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

__all__ = ["EXCUSED", "PAGES", "ROOT", "Block", "blocks_of", "commands_of", "unfenced_lines"]

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

EXCUSED = {
    "./scripts/test": "it is the suite that this test belongs to",
    "scripts/web build": "it replaces the page that other tests are looking at; scripts/test has just run it",
    "./scripts/torture": "three minutes; tests/torture/test_torture.py runs the same program",
    "./scripts/torture --seconds 180 --store both": "as above, for each store",
    ".venv/bin/python -m tests.sim --mutations": "some minutes; tests/sim/test_sim.py switches the same rules off",
    ".venv/bin/python -m pytest -s tests/failover": "the suite runs these tests",
    ".venv/bin/python -m bench.takeover 10": "some minutes of killing workers",
    "scripts/bench": "some minutes, and it wants a machine that does little else",
    "scripts/bench fanout tokens": "as above",
    "scripts/bench-compare main HEAD": "as above, and it makes worktrees of this clone",
    ".venv/bin/python -m bench --json docs/performance.json && .venv/bin/python -m bench.chart": "as above",
}
"""Commands of `sh` blocks that are not run, each with the reason. The tests run all other commands."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """`section` is the heading above; `line` is the number of the first line within the fence."""

    page: Path
    section: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """Return all fenced blocks of a page, in order."""
    whole = page.read_text("utf-8")
    found = []
    for match in _FENCE.finditer(whole):
        headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", whole[: match.start()]), re.MULTILINE)
        line = whole.count("\n", 0, match.start(2)) + 1
        found.append(Block(page, headings[-1] if headings else "", line, match[1], match[2]))
    return found


def unfenced_lines(page: Path) -> list[str]:
    """Return the lines that Markdown shows as code because they are indented; such code names no language, so tests
    cannot run it."""
    return re.findall(r"\n\n((?: {4}|\t).*)", _FENCE.sub("", page.read_text("utf-8")))


def commands_of(text: str) -> list[str]:
    """Return the commands of an `sh` block, without comments. A command continues while a quote is open or a line ends
    in `|` or a backslash."""
    if "<<" in text:  # a here-document is part of one command
        return [text.strip()]
    commands: list[str] = []
    pending = ""
    for line in text.splitlines():
        pending += f"{line}\n"
        if _is_whole(pending):
            if words := _without_comment(pending):
                commands.append(words)
            pending = ""
    assert not pending, f"this command does not end: {pending}"
    return commands


def _is_whole(command: str) -> bool:
    try:
        shlex.split(command, comments=True)
    except ValueError:  # an open quote, or a backslash at the end
        return False
    return not _without_comment(command).endswith(("|", "\\", "&&"))


def _without_comment(command: str) -> str:
    return re.sub(r"(?:^|\s+)#(?=\s)[^'\"\n]*$", "", command.strip())
