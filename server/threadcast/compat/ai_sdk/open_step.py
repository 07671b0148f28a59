"""The chunks of one step of an answer, for the beginning, growth and end of the step, its text and its reasoning."""

from threadcast.compat.base import OutFrame, json_frame

__all__ = ["OpenStep", "chunk"]


def chunk(kind: str, **fields: object) -> OutFrame:
    """Return the frame of one chunk of the UI message stream."""
    return json_frame(None, {"type": kind, **fields})


class OpenStep:
    """Makes the chunks of the step that is being sent to a page. `message_id` is the id of the step's answer; '' before
    the first step."""

    def __init__(self) -> None:
        self.message_id = ""
        self.is_open = False
        self._shown: list[str] = []
        self._reasoned: list[str] = []
        self._is_text_open = False
        self._reasoning_id = ""
        self._reasonings = 0

    def begin(self, message_id: str) -> list[OutFrame]:
        """End the previous step, and begin the step of the answer `message_id`."""
        frames = self.close()
        self.is_open, self.message_id = True, message_id
        self._shown, self._reasoned = [], []
        return [*frames, chunk("start-step")]

    def close(self) -> list[OutFrame]:
        """End the step, if one is open."""
        if not self.is_open:
            return []
        self.is_open = False
        return [*self.close_texts(), chunk("finish-step")]

    def close_texts(self) -> list[OutFrame]:
        """End the text and the reasoning. Later text or reasoning begins a new part."""
        frames = self._close_reasoning()
        if self._is_text_open:
            frames.append(chunk("text-end", id=self.message_id))
            self._is_text_open = False
        return frames

    def _close_reasoning(self) -> list[OutFrame]:
        if not self._reasoning_id:
            return []
        done = chunk("reasoning-end", id=self._reasoning_id)
        self._reasoning_id = ""
        return [done]

    def write(self, text: str) -> list[OutFrame]:
        """Append to the text; this ends the reasoning."""
        frames = self._close_reasoning()
        if not self._is_text_open:
            self._is_text_open = True
            frames.append(chunk("text-start", id=self.message_id))
        self._shown.append(text)
        return [*frames, chunk("text-delta", id=self.message_id, delta=text)]

    def write_up_to(self, text: str) -> list[OutFrame]:
        """Append the rest of `text` after the text that was sent; nothing is appended if `text` does not begin with the
        sent text."""
        more = _rest_of(text, self._shown)
        return self.write(more) if more else []

    def reason(self, text: str) -> list[OutFrame]:
        """Append to the reasoning."""
        if not text:
            return []
        frames: list[OutFrame] = []
        if not self._reasoning_id:
            self._reasonings += 1
            self._reasoning_id = f"reasoning-{self._reasonings}"
            frames.append(chunk("reasoning-start", id=self._reasoning_id))
        self._reasoned.append(text)
        return [*frames, chunk("reasoning-delta", id=self._reasoning_id, delta=text)]

    def reason_up_to(self, text: str) -> list[OutFrame]:
        """Append the rest of `text` after the reasoning that was sent; nothing is appended if `text` does not begin
        with the sent reasoning."""
        return self.reason(_rest_of(text, self._reasoned))


def _rest_of(text: str, sent: list[str]) -> str:
    """Return the rest of `text` after the text that was sent; '' if `text` does not begin with the sent text."""
    before = "".join(sent)
    return text[len(before) :] if text.startswith(before) else ""
