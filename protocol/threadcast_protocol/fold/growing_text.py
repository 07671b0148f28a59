"""A text that grows by tokens. A text is stored as a list of parts, because joining the text at each token would take
quadratic time.

A `GrowingText` is immutable: `plus` returns a new, longer text. Several texts share one list of parts. Only the longest
of these texts may append to the list; the other texts copy the list first. Each token therefore takes constant time,
and old states, such as a state in a cache, do not change.
"""

__all__ = ["GrowingText"]


class GrowingText:
    """An immutable text that can be extended in constant time. Two texts are equal if their joined texts are equal."""

    __slots__ = ("_count", "_parts")

    def __init__(self, text: str = "") -> None:
        self._parts = [text] if text else []
        self._count = len(self._parts)

    def plus(self, text: str) -> "GrowingText":
        """Return this text with `text` appended."""
        if not text:
            return self
        longer = GrowingText.__new__(GrowingText)
        longer._parts = self._parts if len(self._parts) == self._count else self._parts[: self._count]
        longer._parts.append(text)
        longer._count = self._count + 1
        return longer

    def __str__(self) -> str:
        if self._count > 1 and self._count == len(self._parts):
            self._parts = ["".join(self._parts)]
            self._count = 1
        return "".join(self._parts[: self._count])

    def __bool__(self) -> bool:
        return self._count > 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GrowingText) and str(self) == str(other)

    __hash__ = None  # type: ignore[assignment]  # compared, but never used as a key

    def __repr__(self) -> str:
        return f"GrowingText({str(self)!r})"
