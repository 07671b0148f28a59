"""Compares an answer that is written again after a crash with the text that people have already seen. Pure.

While the new text equals the shown text, nothing is sent. The pieces of text and of reasoning are joined before the
comparison, so the sizes of the pieces do not matter.
"""

from threadcast.providers.base import AgentDataDelta, Citation, Delta, ReasoningDelta, TextDelta

__all__ = ["ShownText"]


class ShownText:
    """The shown part of an answer: its text, its reasoning, and the number of its citations."""

    def __init__(self, text: str = "", reasoning: str = "", citations: int = 0) -> None:
        self._left = {TextDelta: text, ReasoningDelta: reasoning}
        self._citations = citations
        self.written: list[Delta] = []
        """All pieces since the crash. These pieces are sent if the answer must begin again."""

    @property
    def is_empty(self) -> bool:
        """Whether everything that was shown has been written again."""
        return not any(self._left.values()) and not self._citations

    def feed(self, delta: Delta) -> list[Delta] | None:
        """Return the part of `delta` that is not shown yet, or None if `delta` differs from the shown text."""
        if self.is_empty:
            return [delta]
        self.written.append(delta)
        match delta:
            case TextDelta() | ReasoningDelta():
                kind = type(delta)
                left = self._left[kind]
                if left.startswith(delta.text):
                    self._left[kind] = left[len(delta.text) :]
                    return []
                if delta.text.startswith(left):
                    self._left[kind] = ""
                    return [kind(delta.text[len(left) :])]
                return None
            case AgentDataDelta():  # sent before the crash, because more shown text follows
                return []
            case Citation():
                if not self._citations:
                    return [delta]
                self._citations -= 1
                return []
            case _:
                return [delta]
