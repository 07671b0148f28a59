"""Cuts markers out of an answer's text: `SUGGESTED_VALUES:`, or the word of a payload type, followed by JSON (PAY-3,
PAY-5, PAY-6).

Models are asked to write a marker at the beginning of a line, but they write markers anywhere: after a bullet, a
number, `>` or the `#` of a heading, in bold, in the middle of a line. A marker inside code (fenced, indented, or in
backticks) is an example and is not removed. The JSON must be an object or a list in strict JSON (RFC 8259), and ends
with its closing bracket. If the JSON is invalid, or does not fit its marker, the text is not changed.

Markup that belongs to a marker and its JSON is removed, too: `*` and `_` around the marker or around marker and JSON,
and backticks or a fence around the JSON. If the line has no other text, its indent, bullet, number, `>` and `#` are
removed, too.

Pure. The time is linear in the length of the text, because every character is read a bounded number of times.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from threadcast.agent_loop.answer.blocks import Blocks
from threadcast_protocol.wire.bodies import read_json

__all__ = ["Accepts", "Found", "cut_out"]

Accepts = Callable[[object], bool]
"""Returns whether a value fits its marker."""

_LEAD = re.compile(r"[ \t]*+(?:>[ \t]*+|(?:[-*+]|\d{1,9}[.)]|#{1,6})[ \t]++)*+")
"""Matches the characters before the first word of a line: indent, `>`, bullets, numbers, the # of a heading."""

_PARAGRAPH_END = re.compile(r"^[ \t]*+(?:$|#{1,6}[ \t]|[-*+][ \t]|\d{1,9}[.)][ \t]|>|`{3}|~{3})", re.MULTILINE)
"""Matches a line that ends a paragraph; code in backticks cannot extend over such a line (CommonMark 6.1)."""

_TICKS = re.compile(r"`+")

_BEFORE_JSON = re.compile(r"\s*+(?:(?P<ticks>`++|~{3,}+)[ \t]*+[A-Za-z0-9_+-]*+\s*+)?(?=[{\[])")
"""Matches white space before the JSON, and the backticks or the fence around the JSON with the name of its language."""

_JSON_TOKEN = re.compile(
    r"""[ \t\r\n,:]*+(?:(?P<open>[{\[])|(?P<close>[}\]])"""
    r"""|"(?:[^"\\\x00-\x1f]++|\\.)*+"|-?\d[\d.eE+-]*+|true|false|null)"""
)
"""Matches a bracket or another token of JSON. JSON has capital letters only inside strings, so a scan of broken JSON
ends at the next marker at the latest. Therefore the time for many broken values is linear in their length."""

EMPHASIS_MAX = 3
"""The largest number of `*` and `_` in a row: bold and italic at once."""

FENCE_MIN = 3
"""The smallest number of backticks or tildes that open a fence. A fence may be closed by a longer run (CommonMark
4.5)."""

_RUN = re.compile(r"`++|~++")
_SPACE = re.compile(r"\s*+")
_BLANKS = re.compile(r"[ \t]*+")
_LINE_END = re.compile(r"[ \t\r]*+(?:\n|\Z)")


class Found(NamedTuple):
    marker: str
    value: object


def cut_out(text: str, markers: Mapping[str, Accepts]) -> tuple[str, list[Found]]:
    """Return the text without the markers whose values are accepted, and these markers with their values in order."""
    if not any(marker in text for marker in markers):
        return text, []
    scan = _Scan(text, markers)
    scan.run()
    return (_joined(scan.kept()) if scan.found else text), scan.found


@lru_cache(maxsize=64)  # one set of markers for each scope of each profile
def _inline(words: tuple[str, ...]) -> re.Pattern[str]:
    """Match backticks, an escaped backtick, or a marker with its colon (also the full-width colon)."""
    anyone = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    marker = rf"(?<![A-Za-z0-9])(?P<word>{anyone})(?P<end>[*_]{{0,3}})[ \t]{{0,2}}[:\uff1a](?P<after>[*_]{{0,3}})"
    return re.compile(rf"\\[\\`]|(?P<ticks>`++)|{marker}")


class _Scan:
    """Scans a text once, line by line. The text before the index `_at` has been scanned."""

    def __init__(self, text: str, markers: Mapping[str, Accepts]) -> None:
        self.found: list[Found] = []
        self._text = text
        self._markers = markers
        self._inline = _inline(tuple(markers))
        self._cuts: list[tuple[int, int]] = []
        self._at = 0
        self._runs_until = 0
        self._runs: dict[int, list[int]] = {}

    def kept(self) -> list[str]:
        """Return the text between the cuts."""
        ends = [0, *(end for _, end in self._cuts)]
        starts = [*(start for start, _ in self._cuts), len(self._text)]
        return [self._text[end:start] for end, start in zip(ends, starts, strict=True)]

    def run(self) -> None:
        text, start = self._text, 0
        blocks = Blocks(text)
        while start < len(text):
            end = text.find("\n", start) + 1 or len(text)
            if start < self._at:  # a value or code from an earlier line ends in this line or later
                blocks.after_break = False
                self._line(max(start, self._at), end, None)
            else:
                was_after_break, cuts = blocks.after_break, len(self._cuts)
                if not blocks.is_code(start, end):
                    self._line(start, end, start)
                    if len(self._cuts) > cuts and self._cuts[cuts][0] == start:  # the whole line is removed
                        blocks.after_break = was_after_break and blocks.after_break
            start = end

    def _line(self, start: int, end: int, line_start: int | None) -> None:
        """Look for markers from `start`. `line_start` is the index of the line's beginning, None if a value or code
        from an earlier line reaches into the line."""
        at = start
        lead = None if line_start is None else _LEAD.match(self._text, start, end)
        while at < end and (token := self._inline.search(self._text, at, end)):
            floor, at = at, token.end()
            if token["ticks"]:
                at = self._end_of_code(token.start(), at)
            elif token["word"] and (begins := self._begin(token.start("word"), floor)) is not None:
                is_first = lead is not None and begins == lead.end()
                at = self._take(token, begins, line_start if is_first and line_start is not None else begins)
        self._at = max(self._at, at, end)

    def _begin(self, word: int, floor: int) -> int | None:
        """Return the index, at least `floor`, at which the emphasis before a word begins. Return None if the word is
        the end of a longer word, like CHART in MY_CHART."""
        begins = word
        while begins > floor and word - begins < EMPHASIS_MAX and self._text[begins - 1] in "*_":
            begins -= 1
        before = self._text[begins - 1 : begins] if begins > floor else ""
        goes_on = before == "_" or (before.isascii() and before.isalnum())
        return None if goes_on and "_" in self._text[begins:word] else begins

    def _take(self, token: re.Match[str], begins: int, line: int) -> int:
        """Cut the marker out with its value if the value is accepted. Returns the index from which the search
        continues. `begins` is the index of the marker's emphasis; `line` is the beginning of the line if the marker is
        the first word of the line; otherwise `line` equals `begins`."""
        text = self._text
        opening = _BEFORE_JSON.match(text, token.end())
        end = _end_of_json(text, opening.end()) if opening else None
        if opening is None or end is None:
            return token.end()
        word, written = token["word"], text[opening.end() : end]
        if ticks := opening["ticks"]:
            closed = _end_of_ticks(text, end, ticks)
            if closed is None:  # the backticks enclose more than the JSON, so their content is code
                return token.end()
            end = closed
        try:
            value: object = read_json(written)  # strict: no NaN, no lone surrogates
        except (ValueError, RecursionError):
            return end
        if not self._markers[word](value):
            return end
        emphasis = text[begins : token.start("word")]
        if emphasis and not token["end"] and not token["after"]:
            end = _after(text, end, emphasis[::-1])
        self.found.append(Found(word, value))
        is_alone = _LINE_END.match(text, end) is not None
        self._cuts.append((line if is_alone else begins, end))
        return end

    def _end_of_code(self, start: int, end: int) -> int:
        """Return the end of the code that the backticks from `start` to `end` open, or `end` if no backticks close the
        code."""
        if start >= self._runs_until:
            border = _PARAGRAPH_END.search(self._text, self._text.find("\n", start) + 1 or len(self._text))
            self._runs_until = border.start() if border else len(self._text)
            self._runs = {}
            for run in _TICKS.finditer(self._text, start, self._runs_until):
                self._runs.setdefault(run.end() - run.start(), []).append(run.start())
        starts = self._runs.get(end - start, [])
        index = bisect_left(starts, end)
        return starts[index] + end - start if index < len(starts) else end


def _end_of_json(text: str, start: int) -> int | None:
    """Return the index after the closing bracket of the value that begins at `start`. Return None if a bracket is not
    closed, or if the content is not JSON."""
    depth, at = 0, start
    while token := _JSON_TOKEN.match(text, at):
        at = token.end()
        depth += (token["open"] is not None) - (token["close"] is not None)
        if not depth:
            return at
    return None


def _end_of_ticks(text: str, at: int, ticks: str) -> int | None:
    """Return the index after the closing backticks or fence, if only white space precedes them. Return the end of the
    text if the text ends first, and None if other text comes before them."""
    space = _SPACE.match(text, at)
    begins = space.end() if space else at
    closing = _RUN.match(text, begins)
    if closing is None:
        return at if begins == len(text) else None
    length = len(closing[0]) if closing[0][0] == ticks[0] else 0
    return closing.end() if length == len(ticks) or length > len(ticks) >= FENCE_MIN else None


def _after(text: str, at: int, closing: str) -> int:
    """Return the index after `closing` if only blanks are between `at` and `closing`; otherwise return `at`."""
    blanks = _BLANKS.match(text, at)
    end = blanks.end() if blanks else at
    return end + len(closing) if text.startswith(closing, end) else at


def _joined(pieces: list[str]) -> str:
    """Join the pieces between the cuts. A space separates words on one line, an empty line separates paragraphs, and
    lines keep their indent."""
    parts: list[str] = []
    gap: list[str] = []
    for number, piece in enumerate(pieces):
        words = piece.strip()
        if not words:
            gap.append(piece)
            continue
        before = piece[: len(piece) - len(piece.lstrip())]
        if parts:
            parts.append(_between([*gap, before], words))
        if "\n" in before or not number:
            parts.append(before.rpartition("\n")[2])
        parts.append(words)
        gap = [piece[len(piece.rstrip()) :]]
    return "".join(parts)


def _between(gap: list[str], words: str) -> str:
    if any(space.count("\n") > 1 for space in gap):
        return "\n\n"
    if any("\n" in space for space in gap):
        return "\n"
    return " " if any(gap) and words[0] not in ".,;:!?)" else ""
