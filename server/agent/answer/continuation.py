"""Removes text from a continued answer that people have seen already.

A provider that prefills goes on exactly behind the shown text, which is sent to it without its last white space; only
that white space may come again. Any other provider is shown the text as a message and asked to go on (PROTOCOL §6): it
may repeat what it was shown. Pure: how the stream is cut into pieces never changes what comes out.
"""

from server.providers.base import Delta, Finished, TextDelta, ToolCallDelta

__all__ = ["INSTRUCTION", "LEAST_REPEAT_CHARACTERS", "WINDOW_CHARACTERS", "Continuation", "Repeats", "WhiteSpace"]

LEAST_REPEAT_CHARACTERS = 20
"""A shorter repetition may be meant: "ha ha", a refrain's "la la", the same number again."""

WINDOW_CHARACTERS = 32_768
"""The length of the end of the shown text in which a repetition is looked for. At most this much text is held back, and
the worst text that a model could write costs 0.1 s of CPU; an answer of 32,768 characters has some 8,000 tokens."""

INSTRUCTION = (
    "Your last message is not finished. Go on with it exactly where it ends: write only what comes next, beginning "
    "with the very next character. Repeat nothing of it, and write no introduction."
)


class WhiteSpace:
    """The white space at the end of `shown` that a prefilling provider was not sent. White space that the start of the
    continuation repeats is left out."""

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
    """The literal repetition at the very start of a continuation: the longest end of `shown`, of at least
    `LEAST_REPEAT_CHARACTERS`, with which the continuation begins. An answer that begins again is such a repetition too,
    since all of `shown` is an end of it.

    A text is held back while it may still become a repetition. One that turns out to be none is delivered whole.
    """

    def __init__(self, shown: str) -> None:
        self._shown = shown[-WINDOW_CHARACTERS:]
        self._last_start = len(self._shown) - LEAST_REPEAT_CHARACTERS
        self._start = 0
        """The first place of `_shown` from which on it agrees with all that is held, as far as both go."""
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
        if len(text) >= overlap:  # the smallest place is the longest end, so no longer one can follow
            return self._decided(text[overlap:])
        self._held.append(text)
        self._held_count += len(text)
        return ""

    def end(self) -> str:
        """Return the text that is still held after the last piece, without a complete repetition."""
        held = "".join(self._held)
        start = self._next_start(held, max(self._start, len(self._shown) - len(held)))
        return self._decided(held[len(self._shown) - start :] if start <= self._last_start else held)

    def _next_start(self, text: str, start: int) -> int:
        """Return the first place from `start` on at which `_shown` and `text` agree as far as both go, or a place
        behind `_last_start` when they agree nowhere."""
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
    """Filters the deltas of a model call that goes on after `shown`: repeated text is left out."""

    def __init__(self, shown: str, *, is_prefilled: bool) -> None:
        self._texts = WhiteSpace(shown) if is_prefilled else Repeats(shown)

    def feed(self, delta: Delta) -> list[Delta]:
        """Return the next deltas. Deltas that do not depend on the text's place overtake text that is held back."""
        match delta:
            case TextDelta():
                text = self._texts.feed(delta.text)
                return [TextDelta(text)] if text else []
            case ToolCallDelta() | Finished():
                return [*self.end(), delta]
            case _:
                return [delta]

    def end(self) -> list[Delta]:
        """Return the text that is still held back when no more text follows."""
        text = self._texts.end()
        return [TextDelta(text)] if text else []
