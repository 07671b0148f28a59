"""The results of measurements: figures with their bars, printed for people and written as JSON for charts and
comparisons.

A figure is the median of interleaved repetitions. Its least and greatest values show the noise of the measurement. Each
program of `bench/` returns figures, and `python -m bench` collects them. Every figure has a unit, a range and the
command that repeats it.
"""

import statistics
import sys
from collections.abc import Sequence

import msgspec

__all__ = ["Figure", "Section", "announce", "figure", "plain", "progress", "quantile", "ratio", "table"]


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a report. `bar` is the limit in the budget, in the figure's unit."""

    key: str
    """The name of the figure, unique in its section. It must not change, because `bench.compare` pairs figures by
    it."""
    what: str
    value: float
    unit: str
    least: float
    greatest: float
    bar: float | None = None
    at_most: bool = True
    """Whether smaller values are better. If true, `bar` is an upper limit, otherwise a lower limit."""
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """Return whether a figure keeps its bar; None for a figure without a bar."""
        if self.bar is None:
            return None
        return self.value <= self.bar if self.at_most else self.value >= self.bar


class Section(msgspec.Struct, frozen=True):
    """The result of one program: its row of the budget, the command that repeats it, and its figures."""

    row: str
    title: str
    command: str
    figures: list[Figure]
    remarks: list[str] = []


def figure(
    key: str,
    what: str,
    values: Sequence[float],
    unit: str,
    *,
    bar: float | None = None,
    at_most: bool = True,
    note: str = "",
) -> Figure:
    """Return the median of `values` with their range. Raises statistics.StatisticsError if there are no values."""
    return Figure(key, what, statistics.median(values), unit, min(values), max(values), bar, at_most, note)


def ratio(
    key: str,
    what: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    bar: float | None = None,
    at_most: bool = True,
    note: str = "",
) -> Figure:
    """Return the ratios of our values to theirs, pair by pair. The values of a pair were measured one after the other,
    so noise that lasts longer than a pair cancels out. Raises ValueError if the lengths differ."""
    pairs = [a / b for a, b in zip(ours, theirs, strict=True)]
    return figure(key, what, pairs, "x", bar=bar, at_most=at_most, note=note)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the least value that the fraction `share` of `values` does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(section: Section) -> str:
    """Return the lines of a section for a terminal of 120 columns."""
    width = max((len(each.what) for each in section.figures), default=0)
    lines = [f"{section.row}: {section.title}", f"  ({section.command})"]
    for each in section.figures:
        spread = f"[{plain(each.least)} .. {plain(each.greatest)}]"
        line = f"  {each.what:{width}}  {plain(each.value):>8} {each.unit:5} {spread:20}"
        if each.bar is not None:
            line += f"  bar {'<=' if each.at_most else '>='} {plain(each.bar)}  {'kept' if each.holds else 'MISSED'}"
        lines.append(f"{line}  {each.note}".rstrip())
    return "\n".join([*lines, *(f"  {remark}" for remark in section.remarks)])


def progress(text: str) -> None:
    """Show on a terminal which step runs, over the previous step. Empty: done."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def announce(row: str, seconds: float) -> None:
    """Print how long a row takes on an otherwise idle machine with two cores. It is printed before the row begins, also
    into a file."""
    print(f"{row}: takes about {seconds:.0f} s", file=sys.stderr, flush=True)


def plain(value: float) -> str:
    """Return a number with three significant digits."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
