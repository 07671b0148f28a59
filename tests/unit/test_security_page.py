"""docs/security.md names only tests that exist, and each of its rows has a place where a reader finds it."""

import re

from tests.support.server import ROOT

_PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")


def test_every_test_in_the_tables_of_attacks_exists() -> None:
    named = re.findall(r"`(test_\w+)`", _PAGE)
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "tests" / "security").glob("test_*.py"))
    assert len(named) > 10
    assert [name for name in named if f"def {name}(" not in sources] == []


def test_every_row_has_a_threat_a_defence_and_a_test() -> None:
    rows = [
        line for line in _PAGE.splitlines() if line.startswith("|") and not line.startswith(("| threat |", "| --- |"))
    ]
    assert len(rows) > 10
    form = re.compile(r"\| [A-Z][^|]+\. \| [A-Z0-9`][^|]+\. \| `test_\w+`(, `test_\w+`)* \|")
    assert [row for row in rows if not form.fullmatch(row)] == []


def test_the_list_at_the_top_names_every_group_of_attacks() -> None:
    groups = re.findall(r"^## (.+)\n\n\| threat \|", _PAGE, re.MULTILINE)
    assert groups == re.findall(r"^- \[(.+)\]\(#", _PAGE, re.MULTILINE)
    assert len(groups) == 5
