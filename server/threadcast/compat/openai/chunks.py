"""The answer of `POST /v1/chat/completions`: OpenAI's chunks, or one completion (PROTOCOL §14).

All rounds of the run become one choice of one completion, with their text, `reasoning_content` and usage; a blank line
separates the texts of two rounds. The server runs its own tools, and the answer does not show their calls, because a
client would run them again. If the run waits for tools of the request, the answer ends with `tool_calls`; the next
request answers them. The id of such a call names the chat, so that a client which knows no chats finds the chat again.
"""

import json
from collections.abc import Collection

from threadcast.compat.base import OutFrame, Projection, json_frame
from threadcast.compat.foreign_ids import call_id_of
from threadcast.compat.openai.errors import openai_error
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.wire.deltas import AppendContent, AppendReasoning
from threadcast_protocol.wire.events import (
    Event,
    IdeToolRequired,
    RuntimeUpdated,
    StreamDelta,
    StreamFinished,
    StreamStarted,
)
from threadcast_protocol.wire.messages import JsonObject, Usage, add_usage, text_of

__all__ = ["PAUSE_MARK", "ROUND_SEPARATOR", "OpenAIChunks"]

DONE = OutFrame(None, "[DONE]")

ROUND_SEPARATOR = "\n\n"
"""Separates the texts of two rounds, which are two messages in the chat."""

PAUSE_MARK = "[Waiting for approval: "
"""Begins the notice of a run that waits for a person; the page's link and `]` follow."""

_CLOSED_REASONS = frozenset({"stop", "length", "content_filter"})
"""OpenAI's finish reasons, except the reasons that ask the client to act."""


class OpenAIChunks(Projection):
    """Makes the frames of `POST /v1/chat/completions`. `created_seconds` is Unix time. `model` is the model of the
    request. `tools` are the names of the tools that the caller runs. `link` is the address of the chat's page.
    `shown_id` is the chat's id as the caller wrote it."""

    def __init__(
        self,
        chat_id: str,
        completion_id: str,
        *,
        model: str,
        created_seconds: int,
        with_usage: bool,
        tools: Collection[str] = (),
        link: str = "",
        shown_id: str = "",
    ) -> None:
        super().__init__(chat_id)
        self._completion_id = completion_id
        self._model = model
        self._created_seconds = created_seconds
        self._with_usage = with_usage
        self._tools = tools
        self._link = link
        self._metadata: JsonObject = {"chat_id": shown_id or chat_id}
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[JsonObject] = []
        self._is_new_round = self._is_waiting = False
        self._usage: Usage | None = None
        self._finish_reason = "stop"

    @property
    def is_waiting(self) -> bool:
        """Whether the answer has ended because its run waits for a person or for the caller's tools."""
        return self._is_waiting

    def begin(self) -> list[OutFrame]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def join(self, state: ChatState) -> list[OutFrame]:
        """Begin with the text of the answer that the model writes now, if it writes one."""
        frames = self.begin()
        if state.draft is not None:
            self._answers.add(state.draft.message.message_id)
            text = text_of(state.draft.message.content)
            frames += self._text(text) if text else []
        return frames

    def body(self) -> JsonObject:
        """Return a `chat.completion`, or `{"error": …}` if the run did not complete."""
        if self.failure is not None:
            return self.failed_body()
        message: JsonObject = {"role": "assistant", "content": "".join(self._texts) or None, "refusal": None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = self._calls
        else:
            message["content"] = message["content"] or ""
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason}
        return {**self._envelope("chat.completion"), "choices": [choice], "usage": self._usage}

    def failed_body(self) -> JsonObject:
        return {**self._error_body(), "metadata": self._metadata}

    def _show(self, event: Event) -> list[OutFrame]:
        match event:
            case StreamStarted():
                self._model = event.model or self._model
                self._is_new_round = bool(self._texts)
            case StreamDelta():
                return self._delta(event)
            case StreamFinished():
                self._usage = add_usage(self._usage, event.usage)
                self._finish_reason = event.finish_reason if event.finish_reason in _CLOSED_REASONS else "stop"
            case IdeToolRequired() if event.tool_name in self._tools:
                arguments = json.dumps(event.args, ensure_ascii=False, separators=(",", ":"))
                function = {"name": event.tool_name, "arguments": arguments}
                shown_id = call_id_of(self.chat_id, event.tool_call_id)
                self._calls.append({"id": shown_id, "type": "function", "function": function})
            case RuntimeUpdated(state="waiting_ide") if self._calls:
                return self._hand_over()
            case _:
                pass
        return []

    def _delta(self, event: StreamDelta) -> list[OutFrame]:
        frames: list[OutFrame] = []
        for op in event.ops:
            match op:
                case AppendContent() if op.text:
                    frames += self._text(op.text)
                case AppendReasoning():
                    self._reasoning.append(op.text)
                    frames.append(self._chunk({"reasoning_content": op.text}))
                case _:
                    pass
        return frames

    def _text(self, text: str) -> list[OutFrame]:
        if self._is_new_round:
            text, self._is_new_round = ROUND_SEPARATOR + text, False
        self._texts.append(text)
        return [self._chunk({"content": text})]

    def _hand_over(self) -> list[OutFrame]:
        """End the answer with the calls that the caller carries out. The run waits for their results."""
        self.is_done = self._is_waiting = True
        self._finish_reason = "tool_calls"
        deltas = [{**call, "index": index} for index, call in enumerate(self._calls)]
        return [self._chunk({"tool_calls": deltas}), *self._end()]

    def _pause(self, event: Event) -> list[OutFrame]:
        """End the answer with a notice. The run waits for a person, who decides on the chat's page."""
        self.is_done = self._is_waiting = True
        self._finish_reason = "stop"
        self._calls.clear()
        text = f"{PAUSE_MARK}{self._link}]"
        self._is_new_round = bool(self._texts)
        return [*self._text(text), *self._end()]

    def _last(self, outcome: str) -> list[OutFrame]:
        if outcome == "limit":  # OpenAI reports an answer that was cut short as `length`, not as a failure
            self.failure, self._finish_reason = None, "length"
        elif self.failure is not None:
            return [json_frame(None, {**self._error_body(), "metadata": self._metadata}), DONE]
        self._calls.clear()  # other clients have answered these calls, or their deadline has passed
        return self._end()

    def _error_body(self) -> JsonObject:
        failure = self.failure
        if failure is None:
            return openai_error("the run failed", "internal", 500)
        return openai_error(failure.message, failure.code, 500)

    def _end(self) -> list[OutFrame]:
        frames = [self._chunk({}, finish_reason=self._finish_reason)]
        if self._with_usage:
            usage = {**self._envelope("chat.completion.chunk"), "choices": [], "usage": self._usage}
            frames.append(json_frame(None, usage))
        return [*frames, DONE]

    def _chunk(self, delta: JsonObject, *, finish_reason: str | None = None) -> OutFrame:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return json_frame(None, {**self._envelope("chat.completion.chunk"), "choices": [choice]})

    def _envelope(self, kind: str) -> JsonObject:
        return {
            "id": self._completion_id,
            "object": kind,
            "created": self._created_seconds,
            "model": self._model,
            "metadata": self._metadata,
        }
