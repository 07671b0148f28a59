"""How text reaches a terminal: styles, whole lines, one line that may be erased again, and nothing harmful.

Pure: what was written is taken as one string. `transcript.py` decides what is said, this file how it stands there.
The one rule: text is written without control characters, which could move the cursor, forge a question or speak to
the terminal itself.
"""

import re

__all__ = ["BOLD", "CYAN", "DIM", "RED", "YELLOW", "Pen", "clean", "short"]

BOLD, DIM, RED, YELLOW, CYAN = "1", "2", "31", "33", "36"
"""SGR parameters (ECMA-48 §8.3.117)."""

CLEAR_LINE = "\r\x1b[K"

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""C0, DEL and C1 but tab and newline; and the marks that turn the direction of text around."""


def clean(text: str) -> str:
    return _CONTROLS.sub("", text)


def short(text: str, max_chars: int) -> str:
    """On one line, and cut."""
    line = " ".join(clean(text).split())
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


class Pen:
    """`is_live`: a line may be erased again, and `width` is the number of columns."""

    def __init__(self, *, is_live: bool = False, has_colors: bool = False, width: int = 80) -> None:
        self._is_live = is_live
        self._has_colors = has_colors
        self._width = width
        self._out: list[str] = []
        self._is_at_line_start = True
        self._has_passing = False

    def taken(self) -> str:
        """Everything written since the last time."""
        text = "".join(self._out)
        self._out.clear()
        return text

    def write(self, text: str, style: str = "") -> None:
        text = clean(text)
        if text:
            self._erase_passing()
            self._out.append(self._styled(text, style))
            self._is_at_line_start = text.endswith("\n")

    def line(self, text: str, style: str = "") -> None:
        """To the end of the line that stands there."""
        self.write(text, style)
        self.write("\n")

    def end_line(self) -> None:
        """Whatever follows begins on a line of its own."""
        self._erase_passing()
        if not self._is_at_line_start:
            self.write("\n")

    def note(self, text: str) -> None:
        """A whole line about, not of, the conversation."""
        self.end_line()
        self.line(text, DIM)

    def passing(self, text: str) -> None:
        """A line that goes away with the next thing written. Where nothing can be erased it is not shown."""
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
