"""`python -m bench.chart`: draws charts and tables from the figures of `python -m bench --json docs/performance.json`.

It writes the SVG files beside the JSON file, and the text between the two marks of `docs/performance.md`. `--check`
writes nothing and fails if a file is out of date; a test runs it. The same figures always give the same bytes, so a
chart changes only when a figure has changed.
"""

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

import msgspec

from bench.__main__ import Report
from bench.figures import Figure, Section, plain

__all__ = ["bars", "budget", "files_of", "main"]

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- begin: written by python -m bench.chart -->", "<!-- end -->"

BESIDE = {
    "fanout": "The cost of an event for each reader, compared with other servers",
    "growth": "How the cost grows with readers and chats",
    "peers": "The same work on other servers",
}
"""The rows that get a chart. The chart of a row shows the figures without a bar, in the unit that most of them have."""

WIDTH, LABEL_WIDTH, VALUE_WIDTH = 880, 330, 120
LINE_HEIGHT, TOP = 26, 46
SHARE_MAX = 2.0
"""The chart of the budget ends at twice the allowed value. A longer bar is cut and labelled with its value."""

LOG_FROM = 30.0
"""The ratio of the greatest to the least value from which the scale is logarithmic, so that small values stay
visible."""

_STYLE = """<style>
text{font:12px system-ui,sans-serif;fill:#1f2328}.t{font-size:15px;font-weight:600}.n{fill:#59636e}
.k{fill:#1a7f6b}.m{fill:#cf4a3c}.b{fill:#5a7fb5}.w{stroke:#1f2328;stroke-width:1}.g{stroke:#59636e;stroke-dasharray:4 3}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.n{fill:#9198a1}.k{fill:#3fb9a0}.m{fill:#f0776a}.b{fill:#7fa3d9}
.w{stroke:#e6edf3}.g{stroke:#9198a1}}
</style>"""
"""The style sheet of the charts. The colours of both themes also differ in brightness."""


def main(arguments: Sequence[str] | None = None, docs: Path = DOCS) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chart", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
    options = parser.parse_args(arguments)
    page = docs / "performance.md"
    report = msgspec.json.decode((docs / "performance.json").read_bytes(), type=Report)
    wanted = files_of(report, page.read_text())
    stale = [name for name, text in wanted.items() if not (docs / name).exists() or (docs / name).read_text() != text]
    left_over = [file.name for file in docs.glob("performance-*.svg") if file.name not in wanted]
    if options.check:
        for name in (*stale, *left_over):
            print(f"docs/{name} is out of date with docs/performance.json; run python -m bench.chart", file=sys.stderr)
        return 1 if stale or left_over else 0
    for name in stale:
        (docs / name).write_text(wanted[name])
    for name in left_over:
        (docs / name).unlink()
    return 0


def files_of(report: Report, page: str) -> dict[str, str]:
    """Return the contents of the generated files by name in docs/: the charts, and `page` with its generated part.
    Raises ValueError if `page` has no marks."""
    charts: dict[str, str] = {}
    if any(figure.bar is not None for section in report.sections for figure in section.figures):
        charts["performance-budget.svg"] = budget(report.sections)
    for section in report.sections:
        if section.row in BESIDE and (figures := _of_one_unit(section)):
            charts[f"performance-{section.row}.svg"] = bars(BESIDE[section.row], figures)
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"docs/performance.md must have the lines {BEGIN} and {END}")
    return {**charts, "performance.md": f"{before}{BEGIN}\n\n{_generated(report, charts)}\n\n{END}{after}"}


def budget(sections: Sequence[Section]) -> str:
    """Draw every figure that has a bar as a share of the allowed value. Shorter is better for all figures."""
    lines = [(section, each) for section in sections for each in section.figures if each.bar is not None]
    scale = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) / SHARE_MAX
    limit = LABEL_WIDTH + scale
    height = TOP + LINE_HEIGHT * len(lines) + 24
    parts = [
        f'<line class="g" x1="{limit:.1f}" y1="{TOP - 6}" x2="{limit:.1f}" y2="{height - 20}"/>',
        f'<text class="n" x="{limit:.1f}" y="{height - 6}" text-anchor="middle">the bar</text>',
    ]
    for number, (section, each) in enumerate(lines):
        shares = sorted(_share(each, value) for value in (each.least, each.greatest))
        share = _share(each, each.value)
        told = f"{plain(each.value)} {each.unit} of {plain(each.bar or 0)}"
        ends = [min(value, SHARE_MAX) * scale for value in (share, *shares)]
        kind = "k" if each.holds else "m"
        parts += _line(number, f"{section.row}: {each.what}", kind, ends, told)
    return _svg("Each row of the budget as a share of its bar", height, parts)


def bars(title: str, figures: Sequence[Figure]) -> str:
    """Draw figures of one unit side by side, with their ranges."""
    room = WIDTH - LABEL_WIDTH - VALUE_WIDTH
    greatest = max(each.greatest for each in figures)
    least = min(each.least for each in figures)
    is_log = least > 0 and greatest / least > LOG_FROM
    bottom = math.floor(math.log10(least)) if is_log else 0.0

    def length(value: float) -> float:
        if is_log:
            return room * (math.log10(max(value, least)) - bottom) / max(math.log10(greatest) - bottom, 1e-9)
        return room * max(value, 0.0) / (greatest or 1.0)

    parts: list[str] = []
    for number, each in enumerate(figures):
        ends = [length(value) for value in (each.value, each.least, each.greatest)]
        parts += _line(number, each.what, "b", ends, f"{plain(each.value)} {each.unit}")
    height = TOP + LINE_HEIGHT * len(figures) + 8
    return _svg(f"{title} ({figures[0].unit}{', logarithmic' if is_log else ''})", height, parts)


def _share(each: Figure, value: float) -> float:
    """Return a value as a share of its bar: 1 is exactly the allowed value, less is better."""
    bar = each.bar or 0.0
    over, under = (value, bar) if each.at_most else (bar, value)
    return over / under if under > 0 else SHARE_MAX


def _of_one_unit(section: Section) -> list[Figure]:
    free = [each for each in section.figures if each.bar is None and each.unit != "x"]
    if len(free) < 2:
        return []
    ((unit, _),) = Counter(each.unit for each in free).most_common(1)
    return [each for each in free if each.unit == unit]


def _line(number: int, label: str, kind: str, ends: Sequence[float], told: str) -> list[str]:
    """Draw one bar with its range and its label. `ends` are the value, the least and the greatest, in pixels."""
    top = TOP + LINE_HEIGHT * number
    middle = top + 9
    value, least, greatest = (LABEL_WIDTH + end for end in ends)
    return [
        f'<text x="{LABEL_WIDTH - 8}" y="{top + 13}" text-anchor="end">{escape(_short(label))}</text>',
        f'<rect class="{kind}" x="{LABEL_WIDTH}" y="{top + 2}" width="{max(value - LABEL_WIDTH, 1):.1f}" height="14"/>',
        f'<line class="w" x1="{least:.1f}" y1="{middle}" x2="{greatest:.1f}" y2="{middle}"/>',
        f'<text class="n" x="{WIDTH - VALUE_WIDTH + 8}" y="{top + 13}">{escape(told)}</text>',
    ]


def _short(label: str) -> str:
    """Cut a text to the available space. The table has the whole text."""
    return label if len(label) <= 54 else f"{label[:53]}…"


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    name = escape(title)
    caption = f'<text class="t" x="8" y="24">{name}</text>'
    return "\n".join([f'{head} role="img" aria-label="{name}">', _STYLE, caption, *parts, "</svg>", ""])


def _generated(report: Report, charts: Sequence[str] | dict[str, str]) -> str:
    if not report.sections:
        return "No figures were measured on a quiet machine yet."
    when = time.strftime("%d %B %Y", time.gmtime(report.taken_at)).lstrip("0")
    where = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    blocks = [f"Taken on {when}; {where}."]
    if report.noise:
        blocks.append("The machine's noise, " + "; ".join(report.noise) + ".")
    blocks += [f"![{name.removeprefix('performance-').removesuffix('.svg')}]({name})" for name in charts]
    for section in report.sections:
        blocks += [f"### {section.row}: {section.title}", f"`{section.command}`", _table(section.figures)]
        if section.remarks:
            blocks.append("\n".join(f"- {remark}" for remark in section.remarks))
    return "\n\n".join(blocks)


def _table(figures: Sequence[Figure]) -> str:
    lines = ["| what | median | least .. greatest | bar | |", "| --- | ---: | ---: | ---: | --- |"]
    for each in figures:
        bar = "" if each.bar is None else f"{'≤' if each.at_most else '≥'} {plain(each.bar)}"
        kept = {True: "kept", False: "**missed**", None: ""}[each.holds]
        note = " ".join(word for word in (kept, each.note) if word)
        spread = f"{plain(each.least)} .. {plain(each.greatest)}"
        cells = (each.what, f"{plain(each.value)} {each.unit}", spread, bar, note)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
