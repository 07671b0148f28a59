"""Finds the lines of an answer's Markdown that are code: fenced or indented, also in lists and quotations (CommonMark
4.4, 4.5, 5.1, 5.2).

The module tracks only the structure that decides about code: the depth of the quotation, the columns at which the
contents of the open list items begin, and whether an indented line continues a paragraph. A fence stays open until it
is closed, even if its quotation or its list item ends earlier.

Pure. The time is linear in the length of the text.
"""

import re
from typing import NamedTuple

__all__ = ["Blocks"]

CODE_INDENT = 4
"""The indentation that makes a line code, unless the line continues a paragraph (CommonMark 4.4)."""

_BLANKS = re.compile(r"[ \t\r]*+")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?=[ \t\r\n]|\Z)")
_FENCE = re.compile(r"`{3,}+(?=[^`\n]*$)|~{3,}+", re.MULTILINE)
_HEADING = re.compile(r"#{1,6}(?=[ \t\r\n]|\Z)")

_RULE = re.compile(r"([-*_])(?:[ \t]*+\1){2,}+[ \t\r]*+$", re.MULTILINE)
_UNDERLINE = re.compile(r"(?:=++|--)[ \t\r]*+$", re.MULTILINE)
"""Matches a line that turns the paragraph above into a heading (CommonMark 4.3). A line with more dashes matches
`_RULE`."""


class _Fence(NamedTuple):
    """An open fence: its backticks or tildes, the depth of its quotation, and the largest indent that closes it."""

    ticks: str
    quotes: int
    most: int


class Blocks:
    """Classifies the lines of a text one after the other. `after_break` is true if the previous line leaves no
    paragraph open, so that an indented line would be code."""

    def __init__(self, text: str) -> None:
        self.after_break = True
        self._text = text
        self._fence: _Fence | None = None
        self._items: list[list[int]] = [[]]
        """The columns of the contents of the open list items, by the depth of their quotation."""

    def is_code(self, start: int, end: int) -> bool:
        """Return whether the line from `start` to `end` is code or blank. Must be called for each line in order."""
        text = self._text
        if self._fence is not None:
            if _closes(text, start, end, self._fence):
                self._fence, self.after_break = None, True
            return True
        at, column, base, depth, began = start, 0, 0, 0, False
        while True:
            at, column = _past_blanks(text, at, end, column)
            items, inner = self._items[depth], column - base
            if at >= end or text[at] == "\n":
                if depth == 0:
                    del self._items[1:]
                self.after_break = True
                return True
            is_rule = not began and _RULE.match(text, at, end) is not None
            fence, item = _FENCE.match(text, at, end), None if is_rule else _ITEM.match(text, at, end)
            is_block = is_rule or fence or item or text[at] in "#>"
            while items and items[-1] > inner and (self.after_break or is_block):
                items.pop()
            beyond = inner - (items[-1] if items else 0)
            if beyond >= CODE_INDENT and self.after_break:
                return True
            if text[at] == ">":
                depth, at, column = depth + 1, at + 1, column + 1
                base = column + (text[at : at + 1] in (" ", "\t"))
                if depth == len(self._items):
                    self._items.append([])
                    self.after_break = True  # the beginning of a quotation ends the paragraph before the quotation
            elif item:
                after, began = column + item.end() - at, True
                at, column = _past_blanks(text, item.end(), end, after)
                is_empty = at >= end or text[at] == "\n" or column - after > CODE_INDENT
                items.append((after + 1 if is_empty else column) - base)
                self.after_break = True
            else:
                break
        del self._items[depth + 1 :]
        if fence:
            indent = column - base
            self._fence = _Fence(fence[0], depth, (indent if beyond >= CODE_INDENT else indent - beyond) + 3)
            return True
        begins = [_RULE, _HEADING] if self.after_break else [_RULE, _HEADING, _UNDERLINE]
        self.after_break = beyond < CODE_INDENT and any(each.match(text, at, end) for each in begins)
        return False


def _past_blanks(text: str, at: int, end: int, column: int) -> tuple[int, int]:
    """Return the index and the column of the first character from `at` on that is neither a space nor a tab."""
    while at < end and text[at] in " \t\r":
        column += 4 - column % 4 if text[at] == "\t" else 1
        at += 1
    return at, column


def _closes(text: str, start: int, end: int, fence: _Fence) -> bool:
    at, column, base = start, 0, 0
    for depth in range(fence.quotes + 1):
        at, column = _past_blanks(text, at, end, column)
        if depth == fence.quotes or text[at : at + 1] != ">":
            break
        at, column = at + 1, column + 1
        base = column + (text[at : at + 1] in (" ", "\t"))
    line = text[at:end].rstrip(" \t\r\n")
    return column - base <= fence.most and len(line) >= len(fence.ticks) and not line.strip(fence.ticks[0])
