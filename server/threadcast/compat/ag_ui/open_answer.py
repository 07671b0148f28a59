"""The events of one answer while a model writes it: text, reasoning and the arguments of its calls. Pure.

Text and calls stay open until the answer is complete, because AG-UI forbids a second start of one id in a run. The
shown parts are kept, so that a snapshot in the middle of the answer contains them.
"""

from collections.abc import Sequence

from threadcast.compat.ag_ui.history import reasoning_id
from threadcast.compat.base import OutFrame, json_frame
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning, DeltaOp, SetReasoning, SetToolCalls
from threadcast_protocol.wire.messages import FunctionCall, Message, ToolCall, text_of

__all__ = ["OpenAnswer", "event"]


def event(kind: str, **fields: object) -> OutFrame:
    """Return an event of AG-UI as a frame."""
    return json_frame(None, {"type": kind, **fields})


class OpenAnswer:
    """Makes the events of the answer `message_id`. The client already knows `text` and `reasoning`."""

    def __init__(self, message_id: str, text: str = "", reasoning: str = "") -> None:
        self.message_id = message_id
        self._texts = [text]
        self._reasonings = [reasoning]
        self._calls: dict[str, tuple[str, str]] = {}
        self._open_calls: list[str] = []
        self._is_text_open = self._is_reasoning_open = False

    @property
    def has_shown(self) -> bool:
        """Whether the client has received any part of the answer."""
        return bool(self._calls) or any(self._texts) or any(self._reasonings)

    def so_far(self) -> Message:
        """Return the part of the answer that was shown."""
        calls = [
            ToolCall(id=key, index=index, function=FunctionCall(name, arguments))
            for index, (key, (name, arguments)) in enumerate(self._calls.items())
        ]
        return Message(
            role="assistant",
            content="".join(self._texts),
            message_id=self.message_id,
            reasoning_content="".join(self._reasonings) or None,
            tool_calls=calls,
        )

    def op(self, op: DeltaOp) -> list[OutFrame]:
        """Return the events of one operation of a delta."""
        match op:
            case AppendContent():
                return self.text(op.text)
            case AppendReasoning():
                return self._reason(op.text)
            case SetReasoning():
                shown = "".join(self._reasonings)
                return self._reason(op.text[len(shown) :]) if op.text.startswith(shown) else []
            case SetToolCalls():
                return self.calls(op.tool_calls)
            case _:
                return []

    def text(self, text: str) -> list[OutFrame]:
        """Return the events that append this text to the answer."""
        if not text:
            return []
        frames = self._close_reasoning()
        if not self._is_text_open:
            self._is_text_open = True
            frames.append(event("TEXT_MESSAGE_START", messageId=self.message_id, role="assistant"))
        self._texts.append(text)
        frames.append(event("TEXT_MESSAGE_CONTENT", messageId=self.message_id, delta=text))
        return frames

    def calls(self, calls: Sequence[ToolCall]) -> list[OutFrame]:
        """Return the new events of the answer's calls; the arguments of calls may still grow."""
        frames: list[OutFrame] = []
        for call in calls:
            key, name, arguments = call.id, call.function.name, call.function.arguments
            shown = self._calls.get(key)
            if shown is None:
                frames += self._close_reasoning()
                self._open_calls.append(key)
                frames.append(
                    event("TOOL_CALL_START", toolCallId=key, toolCallName=name, parentMessageId=self.message_id)
                )
                shown = (name, "")
            more = arguments[len(shown[1]) :] if arguments.startswith(shown[1]) else ""
            if more:
                frames.append(event("TOOL_CALL_ARGS", toolCallId=key, delta=more))
            self._calls[key] = (name, shown[1] + more)
        return frames

    def finish(self, message: Message) -> tuple[list[OutFrame], bool]:
        """Return the events that complete the answer with the final form `message`, and whether the client now has
        exactly that form. If the forms differ, the client needs a snapshot."""
        shown, final = "".join(self._texts), text_of(message.content)
        thought, thoughts = "".join(self._reasonings), message.reasoning_content or ""
        frames: list[OutFrame] = []
        if thoughts.startswith(thought):
            frames += self._reason(thoughts[len(thought) :])
        if final.startswith(shown):
            frames += self.text(final[len(shown) :])
        frames += [*self.calls(message.tool_calls), *self.close()]
        now = self.so_far()
        told = [(call.id, call.function) for call in now.tool_calls]
        is_exact = (
            now.content == final
            and (now.reasoning_content or "") == thoughts
            and told == [(call.id, call.function) for call in message.tool_calls]
        )
        return frames, is_exact

    def close(self) -> list[OutFrame]:
        """Return the events that end all open parts."""
        frames = self._close_reasoning()
        if self._is_text_open:
            self._is_text_open = False
            frames.append(event("TEXT_MESSAGE_END", messageId=self.message_id))
        frames += [event("TOOL_CALL_END", toolCallId=key) for key in self._open_calls]
        self._open_calls = []
        return frames

    def _reason(self, text: str) -> list[OutFrame]:
        if not text:
            return []
        key = reasoning_id(self.message_id)
        frames: list[OutFrame] = []
        if not self._is_reasoning_open:
            self._is_reasoning_open = True
            frames.append(event("REASONING_START", messageId=key))
            frames.append(event("REASONING_MESSAGE_START", messageId=key, role="reasoning"))
        self._reasonings.append(text)
        frames.append(event("REASONING_MESSAGE_CONTENT", messageId=key, delta=text))
        return frames

    def _close_reasoning(self) -> list[OutFrame]:
        if not self._is_reasoning_open:
            return []
        self._is_reasoning_open = False
        key = reasoning_id(self.message_id)
        return [event("REASONING_MESSAGE_END", messageId=key), event("REASONING_END", messageId=key)]
