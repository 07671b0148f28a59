"""What a measurement says: figures with their bars, printed for people and kept as JSON for charts and comparisons.

A figure is the median of interleaved repetitions with the least and the greatest beside it, so that a reader sees the
noise that it was taken in. Each program of `bench/` returns figures; `python -m bench` collects them. This file knows
no row and starts nothing. The rule: a figure without its unit, its command and its spread is not shown.
"""

import statistics
import sys
from collections.abc import Sequence

import msgspec

__all__ = ["Figure", "Section", "announce", "figure", "plain", "progress", "quantile", "ratio", "table"]


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a report. `bar` is what the budget asks for, in the figure's own unit."""

    key: str
    """Stable and unique in its section: `bench.compare` pairs figures of two commits by it."""
    what: str
    value: float
    unit: str
    least: float
    greatest: float
    bar: float | None = None
    at_most: bool = True
    """Whether less is better; then `bar` is an upper bound, otherwise a lower one."""
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the bar is kept; None without one."""
        if self.bar is None:
            return None
        return self.value <= self.bar if self.at_most else self.value >= self.bar


class Section(msgspec.Struct, frozen=True):
    """What one program printed: its row of the budget, the command to repeat it, its figures."""

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
    """The median of `values` with their range. Raises statistics.StatisticsError when there are none."""
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
    """Ours over theirs, pair by pair as they were taken one after the other: noise that lasts longer than a pair
    cancels out. Raises ValueError when there are not as many of both."""
    pairs = [a / b for a, b in zip(ours, theirs, strict=True)]
    return figure(key, what, pairs, "x", bar=bar, at_most=at_most, note=note)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of `values` do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(section: Section) -> str:
    """Lines for a terminal of 120 columns."""
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
    """What is being done, on a terminal, over what was said before. Empty: done."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def announce(row: str, seconds: float) -> None:
    """How long the row takes on a machine of two cores that does little else; said before it begins, also into a file,
    so that whoever waits knows for how long."""
    print(f"{row}: takes about {seconds:.0f} s", file=sys.stderr, flush=True)


def plain(value: float) -> str:
    """Three digits that matter, for people."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
