"""Removes repeated text from a continued answer, because people have seen that text already.

A provider that prefills continues exactly after the shown text. Such a provider gets the text without the white space
at its end, so only this white space may be repeated. Any other provider gets the text as a message with the request to
continue (PROTOCOL §6), and may repeat a part of the text. Pure: the sizes of the stream's pieces do not change the
result.
"""

from threadcast.providers.base import Delta, Finished, TextDelta, ToolCallDelta

__all__ = ["INSTRUCTION", "LEAST_REPEAT_CHARACTERS", "WINDOW_CHARACTERS", "Continuation", "Repeats", "WhiteSpace"]

LEAST_REPEAT_CHARACTERS = 20
"""The minimum length of a repetition that is removed. A shorter repetition may be intended, such as "ha ha", the "la
la" of a refrain, or the same number again."""

WINDOW_CHARACTERS = 32_768
"""The number of characters at the end of the shown text that are searched for a repetition. At most this number of
characters is held back. Therefore the search takes at most 0.1 s of CPU for any text of a model. An answer of 32,768
characters has about 8,000 tokens."""

INSTRUCTION = (
    "Your last message is not finished. Go on with it exactly where it ends: write only what comes next, beginning "
    "with the very next character. Repeat nothing of it, and write no introduction."
)


class WhiteSpace:
    """Handles the white space at the end of `shown`, which was not sent to a prefilling provider. If the continuation
    begins with this white space, the repetition is left out."""

    def __init__(self, shown: str) -> None:
        self._expected = shown[len(shown.rstrip()) :]

    def feed(self, text: str) -> str:
        """Return the new part of the next piece."""
        at = 0
        while at < min(len(text), len(self._expected)) and text[at] == self._expected[at]:
            at += 1
        self._expected = self._expected[at:] if at == len(text) else ""
        return text[at:]

    def end(self) -> str:
        """Return '', because nothing is held back."""
        return ""


class Repeats:
    """Removes the repetition at the start of a continuation: the longest end of `shown`, of at least
    `LEAST_REPEAT_CHARACTERS`, with which the continuation begins. An answer that starts again from its beginning is
    removed too, because the whole of `shown` counts as an end of `shown`.

    Text is held back while it may still become a repetition, and delivered as soon as it cannot become one.
    """

    def __init__(self, shown: str) -> None:
        self._shown = shown[-WINDOW_CHARACTERS:]
        self._last_start = len(self._shown) - LEAST_REPEAT_CHARACTERS
        self._start = 0
        """The first index in `_shown` from which `_shown` equals the held text, up to the end of the shorter text."""
        self._held: list[str] = []
        self._held_count = 0
        self._is_decided = self._last_start < 0

    def feed(self, text: str) -> str:
        """Return the text that may be shown now."""
        if self._is_decided or not text:
            return text
        compared = self._start + self._held_count
        overlap = len(self._shown) - compared
        if text[:overlap] != self._shown[compared : compared + len(text)]:
            text = "".join([*self._held, text])
            self._held, self._held_count = [], 0
            self._start = self._next_start(text, self._start + 1)
            if self._start > self._last_start:
                return self._decided(text)
            overlap = len(self._shown) - self._start
        if len(text) >= overlap:  # the smallest index gives the longest repetition
            return self._decided(text[overlap:])
        self._held.append(text)
        self._held_count += len(text)
        return ""

    def end(self) -> str:
        """Return the text that is still held back after the last piece. A complete repetition at its start is
        removed."""
        held = "".join(self._held)
        start = self._next_start(held, max(self._start, len(self._shown) - len(held)))
        return self._decided(held[len(self._shown) - start :] if start <= self._last_start else held)

    def _next_start(self, text: str, start: int) -> int:
        """Return the first index from `start` on at which `_shown` and `text` are equal up to the end of the shorter
        text. Return `_last_start` + 1 if there is no such index."""
        head = text[:LEAST_REPEAT_CHARACTERS]
        while start <= self._last_start:
            start = self._shown.find(head, start)
            if start < 0:
                break
            if self._shown.startswith(text[: len(self._shown) - start], start):
                return start
            start += 1
        return self._last_start + 1

    def _decided(self, text: str) -> str:
        self._is_decided = True
        self._held = []
        return text


class Continuation:
    """Removes repeated text from the deltas of a model call that continues after `shown`."""

    def __init__(self, shown: str, *, is_prefilled: bool) -> None:
        self._texts = WhiteSpace(shown) if is_prefilled else Repeats(shown)

    def feed(self, delta: Delta) -> list[Delta]:
        """Return the deltas to deliver now. A delta without a place in the text does not wait for text that is held
        back."""
        match delta:
            case TextDelta():
                text = self._texts.feed(delta.text)
                return [TextDelta(text)] if text else []
            case ToolCallDelta() | Finished():
                return [*self.end(), delta]
            case _:
                return [delta]

    def end(self) -> list[Delta]:
        """Return the text that is still held back, because no more text follows."""
        text = self._texts.end()
        return [TextDelta(text)] if text else []
