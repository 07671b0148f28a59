"""Formats text for a terminal: styles, whole lines, and one line that can be erased.

The module is pure: `Pen.taken` returns the output as a string. `transcript.py` chooses the content. Control characters
are removed from the text, because they could move the cursor, forge a question or control the terminal.
"""

import re

__all__ = ["BOLD", "CYAN", "DIM", "RED", "YELLOW", "Pen", "clean", "short"]

BOLD, DIM, RED, YELLOW, CYAN = "1", "2", "31", "33", "36"
"""SGR parameters (ECMA-48 §8.3.117)."""

CLEAR_LINE = "\r\x1b[K"

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""The characters of C0, DEL and C1 except tab and newline, and the marks that change the direction of text."""


def clean(text: str) -> str:
    """Return the text without control characters."""
    return _CONTROLS.sub("", text)


def short(text: str, max_chars: int) -> str:
    """Return the text on one line, cut to at most `max_chars` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


class Pen:
    """Collects output for a terminal.

    `is_live`: the terminal can erase a line. `width` is the number of columns of such a terminal.
    """

    def __init__(self, *, is_live: bool = False, has_colors: bool = False, width: int = 80) -> None:
        self._is_live = is_live
        self._has_colors = has_colors
        self._width = width
        self._out: list[str] = []
        self._is_at_line_start = True
        self._has_passing = False

    def taken(self) -> str:
        """Return the output since the last call."""
        text = "".join(self._out)
        self._out.clear()
        return text

    def write(self, text: str, style: str = "") -> None:
        """Write text where the cursor is. `style` is an SGR parameter."""
        text = clean(text)
        if text:
            self._erase_passing()
            self._out.append(self._styled(text, style))
            self._is_at_line_start = text.endswith("\n")

    def line(self, text: str, style: str = "") -> None:
        """Write text and end the line."""
        self.write(text, style)
        self.write("\n")

    def end_line(self) -> None:
        """Make sure that the next text begins on a new line."""
        self._erase_passing()
        if not self._is_at_line_start:
            self.write("\n")

    def note(self, text: str) -> None:
        """Write a dimmed line that is not part of the conversation."""
        self.end_line()
        self.line(text, DIM)

    def passing(self, text: str) -> None:
        """Write a line that the next output erases. Without `is_live` nothing is written."""
        if self._is_live:
            self.end_line()
            if text:
                self._out.append(self._styled(short(text, self._width - 1), DIM))
                self._has_passing = True

    def _erase_passing(self) -> None:
        if self._has_passing:
            self._out.append(CLEAR_LINE)
            self._has_passing = False

    def _styled(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if style and self._has_colors else text
