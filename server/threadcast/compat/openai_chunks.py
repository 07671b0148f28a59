"""The answer of `POST /v1/chat/completions`: OpenAI's chunks, or one completion (PROTOCOL §14).

All rounds of the run become one choice of one completion, with their text, `reasoning_content`, tool calls and usage.
The server runs the tools itself: it shows their calls while the model writes them, and `finish_reason` is never
`tool_calls`, so that no client runs them again. The fragments of a call's arguments, joined, are the model's JSON.
"""

from threadcast.compat.base import Failure, OutFrame, Projection, json_frame
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning, SetToolCalls
from threadcast_protocol.wire.events import Event, MessageAdded, StreamDelta, StreamFinished, StreamStarted
from threadcast_protocol.wire.messages import JsonObject, ToolCall, Usage, add_usage

__all__ = ["OpenAIChunks", "openai_error"]

DONE = OutFrame(None, "[DONE]")


def openai_error(failure: Failure) -> JsonObject:
    """Return an error in the form that OpenAI's clients read."""
    return {"message": failure.message, "type": failure.code, "param": None, "code": failure.code}


class OpenAIChunks(Projection):
    """Makes the frames of `POST /v1/chat/completions`. `created_seconds` is Unix time; `model` is the model of the
    request."""

    def __init__(self, chat_id: str, completion_id: str, *, model: str, created_seconds: int, with_usage: bool) -> None:
        super().__init__(chat_id)
        self._completion_id = completion_id
        self._model = model
        self._created_seconds = created_seconds
        self._with_usage = with_usage
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[str, tuple[int, ToolCall]] = {}
        self._usage: Usage | None = None
        self._finish_reason = "stop"

    def begin(self) -> list[OutFrame]:
        return [self._chunk({"role": "assistant", "content": ""}, with_chat=True)]

    def body(self) -> JsonObject:
        """Return a `chat.completion`, or `{"error": …}` if the run did not complete."""
        if self.failure is not None:
            return {"error": openai_error(self.failure), "metadata": {"chat_id": self.chat_id}}
        message: JsonObject = {"role": "assistant", "content": "".join(self._texts)}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [_call(call) for _, call in self._calls.values()]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason}
        return {
            **self._envelope("chat.completion"),
            "choices": [choice],
            "usage": self._usage,
            "metadata": {"chat_id": self.chat_id},
        }

    def _show(self, event: Event) -> list[OutFrame]:
        match event:
            case StreamStarted():
                self._model = event.model or self._model
            case StreamDelta():
                return self._delta(event)
            case StreamFinished():
                self._usage = add_usage(self._usage, event.usage)
                self._finish_reason = event.finish_reason if event.finish_reason in _CLOSED_REASONS else "stop"
            case MessageAdded(message=message) if self._is_mine(message.message_id):
                return self._new_of(message.tool_calls)
            case _:
                pass
        return []

    def _delta(self, event: StreamDelta) -> list[OutFrame]:
        frames: list[OutFrame] = []
        for op in event.ops:
            match op:
                case AppendContent():
                    self._texts.append(op.text)
                    frames.append(self._chunk({"content": op.text}))
                case AppendReasoning():
                    self._reasoning.append(op.text)
                    frames.append(self._chunk({"reasoning_content": op.text}))
                case SetToolCalls():
                    frames += self._new_of(op.tool_calls)
                case _:
                    pass
        return frames

    def _new_of(self, calls: list[ToolCall]) -> list[OutFrame]:
        """Return a frame with the changes of these calls: id and name of a new call, later the new part of its
        arguments."""
        deltas: list[JsonObject] = []
        for call in calls:
            index, known = self._calls.get(call.id, (len(self._calls), None))
            self._calls[call.id] = (index, call)
            if known is None:
                deltas.append({**_call(call), "index": index})
                continue
            before, now = known.function.arguments, call.function.arguments
            if now.startswith(before) and now != before:
                deltas.append({"index": index, "function": {"arguments": now[len(before) :]}})
        return [self._chunk({"tool_calls": deltas})] if deltas else []

    def _last(self, outcome: str) -> list[OutFrame]:
        if outcome == "limit":  # OpenAI reports an answer that was cut short as `length`, not as a failure
            self.failure, self._finish_reason = None, "length"
        elif self.failure is not None:
            told = {"error": openai_error(self.failure), "metadata": {"chat_id": self.chat_id}}
            return [json_frame(None, told), DONE]
        frames = [self._chunk({}, finish_reason=self._finish_reason, with_chat=True)]
        if self._with_usage:
            usage = {**self._envelope("chat.completion.chunk"), "choices": [], "usage": self._usage}
            frames.append(json_frame(None, usage))
        return [*frames, DONE]

    def _chunk(self, delta: JsonObject, *, finish_reason: str | None = None, with_chat: bool = False) -> OutFrame:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = {**self._envelope("chat.completion.chunk"), "choices": [choice]}
        if with_chat:
            chunk["metadata"] = {"chat_id": self.chat_id}
        return json_frame(None, chunk)

    def _envelope(self, kind: str) -> JsonObject:
        return {
            "id": self._completion_id,
            "object": kind,
            "created": self._created_seconds,
            "model": self._model,
        }


_CLOSED_REASONS = frozenset({"stop", "length", "content_filter"})
"""OpenAI's finish reasons, without those that ask the client to act."""


def _call(call: ToolCall) -> JsonObject:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": function}
