"""Everything that code cites and pages name exists in the repository, and no link is dead."""

import re
from pathlib import Path

from threadcast.base.telemetry import Metrics

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for room in ("server", "client", "protocol", "tests", "bench")
    for path in (ROOT / room).rglob("*")
    if path.suffix in (".py", ".lua")
]
PAGES = {
    "DESIGN": ROOT / "docs/design.md",
    "DISPATCH": ROOT / "docs/dispatch.md",
    "PROTOCOL": ROOT / "protocol/PROTOCOL.md",
}


def sections(page: Path) -> set[str]:
    """Return `4` for each heading `## 4. …`, and `4.2` for each numbered line under it."""
    found: set[str] = set()
    current = ""
    for line in page.read_text().splitlines():
        if heading := re.match(r"## (\d+)", line):
            current = heading[1]
            found.add(current)
        elif item := re.match(r"(\d+)\. ", line):
            found.add(f"{current}.{item[1]}")
    return found


def test_every_cited_section_exists() -> None:
    known = {name: sections(page) for name, page in PAGES.items()}
    for path in SOURCES:
        for name, section in re.findall(r"\b(DESIGN|DISPATCH|PROTOCOL) §([\d.]*\d)", path.read_text()):
            assert section in known[name], f"{path.name} cites {name} §{section}"


def test_every_cited_row_is_explained() -> None:
    explained = set(re.findall(r"^- `([A-Z]+-\d+)`", (ROOT / "docs/rows.md").read_text(), re.MULTILINE))
    families = {row.partition("-")[0] for row in explained}
    for path in SOURCES:
        for row in re.findall(r"\b[A-Z]{2,}-\d+\b", path.read_text()):
            assert row in explained or row.partition("-")[0] not in families, f"{path.name} cites {row}"


def test_every_test_that_a_page_names_exists() -> None:
    names = {name for path in SOURCES for name in re.findall(r"def (test_\w+)", path.read_text())}
    files = {path.name for path in SOURCES}
    for page in (ROOT / "docs").rglob("*.md"):
        for name, is_file in re.findall(r"`(test_\w+)(\.py)?`", page.read_text()):
            assert (f"{name}.py" in files) if is_file else (name in names), f"{page.name} names {name}"


def anchors(page: Path) -> set[str]:
    """Return the names to which `#…` can refer in a page: its headings, in the spelling of code forges."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_no_link_and_no_anchor_is_dead() -> None:
    rooms = ("bench", "client", "docs", "examples", "protocol", "scripts", "web/client")
    tops = [ROOT, *(ROOT / room for room in rooms)]
    pages = {page for top in tops for page in top.glob("*.md")} | {*(ROOT / "docs").rglob("*.md")}
    pages |= {*(ROOT / "examples").glob("*/*.md")}
    for page in sorted(pages):
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            named = (page.parent / target) if target else page
            assert named.exists(), f"{page.relative_to(ROOT)} links to {link}"
            if anchor:
                assert anchor in anchors(named), f"{page.relative_to(ROOT)} links to {link}"


def test_each_decision_has_a_number_of_its_own_and_is_listed_with_its_title_and_status() -> None:
    pages = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    assert [int(page.name[:4]) for page in pages] == [*range(1, len(pages) + 1)]
    table = (ROOT / "docs/decisions/README.md").read_text().splitlines()
    listed = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table if line.startswith("| [")]
    assert [row[0] for row in listed] == [f"[{page.name[:4]}]({page.name})" for page in pages]
    for page, (_, title, status, sentence) in zip(pages, listed, strict=True):
        head, _, dated, *_ = page.read_text().splitlines()
        assert head == f"# {page.name[:4]} {title}"
        assert re.fullmatch(r"\d{4}-\d\d-\d\d · (.+)", dated), dated
        assert dated.partition(" · ")[2] == status and sentence.endswith(".")


def test_every_promise_of_the_readme_has_its_line_and_its_tests() -> None:
    """`test_every_test_that_a_page_names_exists` checks that the test on each line exists."""
    page = (ROOT / "docs/reliability.md").read_text()
    promised = " ".join((ROOT / "README.md").read_text().split())
    lines = [line.split("|") for line in page.partition("## The promises")[2].partition("\n## ")[0].splitlines()]
    promises = [(words.strip(), tried) for _, words, _, tried, _ in (line for line in lines if len(line) == 5)][2:]
    assert len(promises) == 12
    for words, tried in promises:
        assert f"{words}." in promised or f"{words} " in promised or f"{words};" in promised, words
        assert re.search(r"`test_\w+", tried), words


def test_every_safety_rule_that_a_page_names_is_switched_off_by_the_search() -> None:
    lists = [(ROOT / f"tests/sim/{name}.py").read_text() for name in ("mutations", "agent_mutations")]
    rules = set(re.findall(r'Rule\(\s*"([^"]+)"', "".join(lists)))
    page = (ROOT / "docs/reliability.md").read_text()
    named = {
        name for listed in re.findall(r'rules? ((?:"[^"]+"(?:, )?)+)', page) for name in re.findall('"([^"]+)"', listed)
    }
    assert len(named) >= 8
    assert named <= rules


def test_every_metric_that_operators_are_told_to_watch_exists() -> None:
    text = Metrics().render().decode()
    for name in re.findall(r"threadcast_\w+", (ROOT / "docs/operations.md").read_text()):
        assert f"# TYPE {name} " in text or f"# TYPE {name.removesuffix('_total')} " in text, name
