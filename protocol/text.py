"""A text that grows by tokens. Joining at each token would make long answers quadratic, so the parts are kept.

`GrowingText` is a value: `plus` returns a longer text and leaves this one as it is. Several values share one list of
parts; only the longest may append to it, any other copies first. The cost of a token is then constant, and old states
(a snapshot being written, a folded state in a cache) stay what they were.
"""

__all__ = ["GrowingText"]


class GrowingText:
    """An immutable text with cheap `plus`. Equal when the joined texts are equal."""

    __slots__ = ("_count", "_parts")

    def __init__(self, text: str = "") -> None:
        self._parts = [text] if text else []
        self._count = len(self._parts)

    def plus(self, text: str) -> "GrowingText":
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

    __hash__ = None  # type: ignore[assignment]  # a value that is compared, never a key

    def __repr__(self) -> str:
        return f"GrowingText({str(self)!r})"
