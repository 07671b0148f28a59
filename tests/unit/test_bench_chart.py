"""Charts and tables of the performance page show the figures and are readable, and the page in docs/ is current."""

import re
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from bench.__main__ import Report
from bench.chart import DOCS, LABEL_WIDTH, bars, budget, files_of, main
from bench.figures import Figure, Section

SVG = "{http://www.w3.org/2000/svg}"
PAGE = "before\n<!-- begin: written by python -m bench.chart -->\nold\n<!-- end -->\nafter\n"


def a_figure(what: str, value: float, unit: str = "us", **more: object) -> Figure:
    fields: dict[str, object] = {"key": what, "what": what, "value": value, "unit": unit}
    return msgspec.convert({"least": value, "greatest": value, **fields, **more}, Figure)


def drawn(svg: str) -> list[tuple[str, float]]:
    """Return the class and length of each bar."""
    return [
        (each.attrib["class"], float(each.attrib["width"])) for each in ElementTree.fromstring(svg).iter(f"{SVG}rect")
    ]


FANOUT = Section(
    "fanout",
    "500 readers",
    "python -m bench.fanout",
    [
        a_figure("ours", 2.0, least=1.9, greatest=2.6),
        a_figure("send(2) <C>", 1.5),
        a_figure("ours / send", 1.33, "x", bar=2.0),
        a_figure("theirs / ours", 1.5, "x", bar=3.0, at_most=False, note="a | b"),
    ],
    ["one remark"],
)
REPORT = Report(86_400, {"python": "3.11", "cores": 2}, [FANOUT], ["before: calm"])


def test_the_page_in_docs_and_its_charts_are_what_the_figures_give() -> None:
    assert main(["--check"]) == 0, "run python -m bench.chart"


def test_a_bar_of_the_budget_is_as_long_as_its_share_of_what_is_allowed() -> None:
    (kind, length), (missed, double) = drawn(budget([FANOUT]))
    assert (kind, missed) == ("k", "m")
    limit = next(each for each in ElementTree.fromstring(budget([FANOUT])).iter(f"{SVG}line"))
    room = float(limit.attrib["x1"]) - LABEL_WIDTH
    assert length == pytest.approx(room * 1.33 / 2, abs=0.1)
    assert double == pytest.approx(room * 2, abs=0.1), "half of what must be reached: twice what is allowed"


def test_bars_side_by_side_are_in_proportion_and_by_logarithm_when_they_differ_widely() -> None:
    (_, ours), (_, theirs) = drawn(bars("t", FANOUT.figures[:2]))
    assert ours / theirs == pytest.approx(2.0 / 1.5, rel=0.01)
    wide = bars("t", [a_figure("one", 1), a_figure("ten", 10), a_figure("more", 100)])
    assert "logarithmic" in wide
    (_, one), (_, ten), (_, more) = drawn(wide)
    assert more - ten == pytest.approx(ten - one, abs=1.1)


def test_the_same_figures_give_the_same_bytes_and_words_are_escaped() -> None:
    files = files_of(REPORT, PAGE)
    assert files == files_of(REPORT, PAGE)
    assert list(files) == ["performance-budget.svg", "performance-fanout.svg", "performance.md"]
    assert "send(2) &lt;C&gt;" in files["performance-fanout.svg"]
    page = files["performance.md"]
    assert page.startswith("before\n<!-- begin") and page.endswith("<!-- end -->\nafter\n")
    assert "Taken on 2 January 1970; python 3.11, cores 2." in page
    assert "The machine's noise, before: calm." in page
    assert "| ours | 2.00 us | 1.90 .. 2.60 |  |  |" in page
    assert "| theirs / ours | 1.50 x | 1.50 .. 1.50 | ≥ 3.00 | **missed** a \\| b |" in page
    assert "- one remark" in page
    assert re.findall(r"!\[.*\]\((.*)\)", page) == ["performance-budget.svg", "performance-fanout.svg"]


def test_what_is_out_of_date_is_named_and_then_renewed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "performance.md").write_text(PAGE)
    (tmp_path / "performance.json").write_bytes(msgspec.json.encode(REPORT))
    (tmp_path / "performance-gone.svg").write_text("of a row that is no more")
    assert main(["--check"], tmp_path) == 1
    said = capsys.readouterr().err
    for name in ("performance.md", "performance-budget.svg", "performance-gone.svg"):
        assert f"docs/{name} is out of date with docs/performance.json; run python -m bench.chart" in said
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0
    assert not (tmp_path / "performance-gone.svg").exists()
    (tmp_path / "performance.md").write_text("no marks")
    with pytest.raises(ValueError, match="must have the lines"):
        main([], tmp_path)


def test_the_page_of_a_project_that_was_never_measured_says_so() -> None:
    assert DOCS.is_dir()
    assert "No figures were measured" in files_of(Report(0, {}, []), PAGE)["performance.md"]
