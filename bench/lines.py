"""Draws values over time as an SVG file: panels of lines above each other, over one axis of seconds."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

__all__ = ["Line", "Panel", "lines"]

WIDTH, LEFT, RIGHT = 880, 60, 170
PANEL_HEIGHT, PANEL_GAP, TOP, BOTTOM = 120, 26, 44, 34
TICKS_COUNT = 4

_STYLE = """<style>
text{font:12px system-ui,sans-serif;fill:#1f2328}.t{font-size:15px;font-weight:600}.n{fill:#59636e}
path{fill:none;stroke-width:1.6}.g{stroke:#59636e;stroke-width:.5;stroke-dasharray:2 4}
.l0{stroke:#1a7f6b}.l1{stroke:#cf4a3c}.l2{stroke:#5a7fb5}.f0{fill:#1a7f6b}.f1{fill:#cf4a3c}.f2{fill:#5a7fb5}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.n{fill:#9198a1}.g{stroke:#9198a1}
.l0{stroke:#3fb9a0}.l1{stroke:#f0776a}.l2{stroke:#7fa3d9}.f0{fill:#3fb9a0}.f1{fill:#f0776a}.f2{fill:#7fa3d9}}
</style>"""


class Line(NamedTuple):
    """The values of one quantity, one for each time of the chart; None stands for a missing value, at which the line is
    interrupted."""

    name: str
    values: Sequence[float | None]


class Panel(NamedTuple):
    """Up to three lines with one unit."""

    unit: str
    lines: Sequence[Line]


def lines(title: str, seconds: Sequence[float], panels: Sequence[Panel]) -> str:
    """Return the SVG text of the panels over the times `seconds`, at least two and in order."""
    bottom = TOP + len(panels) * (PANEL_HEIGHT + PANEL_GAP) - PANEL_GAP
    scale = (WIDTH - LEFT - RIGHT) / (seconds[-1] - seconds[0])
    xs = [LEFT + (each - seconds[0]) * scale for each in seconds]
    parts: list[str] = []
    for number, panel in enumerate(panels):
        parts += _panel(TOP + number * (PANEL_HEIGHT + PANEL_GAP), xs, panel)
    step = max(1, round((seconds[-1] - seconds[0]) / 100)) * 10
    for at in range(0, int(seconds[-1] - seconds[0]) + 1, step):
        x = LEFT + at * scale
        parts.append(f'<text class="n" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{at} s</text>')
    height = bottom + BOTTOM
    name = escape(title)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    caption = f'<text class="t" x="8" y="24">{name}</text>'
    return "\n".join([f'{head} role="img" aria-label="{name}">', _STYLE, caption, *parts, "</svg>", ""])


def _panel(top: int, xs: Sequence[float], panel: Panel) -> list[str]:
    ceiling = _ceiling(max(value for line in panel.lines for value in line.values if value is not None))
    scale = PANEL_HEIGHT / ceiling
    parts = []
    for tick in range(TICKS_COUNT + 1):
        y = top + PANEL_HEIGHT * (1 - tick / TICKS_COUNT)
        value = f"{ceiling * tick / TICKS_COUNT:g}"
        parts.append(f'<line class="g" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text class="n" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
    for number, line in enumerate(panel.lines):
        points = [
            "" if value is None else f"{x:.1f},{top + PANEL_HEIGHT - value * scale:.1f}"
            for x, value in zip(xs, line.values, strict=True)
        ]
        for piece in " ".join(each or "|" for each in points).split("|"):
            if piece.strip():
                parts.append(f'<path class="l{number}" d="M{piece.strip()}"/>')
        label = escape(f"{line.name}, {panel.unit}")
        parts.append(f'<text class="f{number}" x="{WIDTH - RIGHT + 8}" y="{top + 14 + 18 * number}">{label}</text>')
    return parts


def _ceiling(value: float) -> float:
    """Return the least of 1, 2, 4 and 6 times a power of ten that is not below `value`: a scale with round ticks."""
    power = 10.0**-3
    while True:
        for factor in (1, 2, 4, 6):
            if factor * power >= value:
                return factor * power
        power *= 10
