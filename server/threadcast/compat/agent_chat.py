"""The frames of `POST /v1/agent/chat`: named events with JSON data (PROTOCOL §14).

The events are `message_start` for each model call (its `turn` counts from 0), `content_chunk`, `tool_call_start` as
soon as a call has a name, `tool_call_result` and `<type>_preview`. The last event is `message_complete`, or `error` if
the run did not complete. An error is sent only when the run is over, because a summary may follow after a limit was
reached.
"""

import re

from threadcast.compat.base import OutFrame, Projection, appended_text, json_frame
from threadcast_protocol.wire.deltas import SetToolCalls
from threadcast_protocol.wire.events import (
    FINAL_TOOL_STATUSES,
    Event,
    PayloadAdded,
    RuntimeUpdated,
    StreamDelta,
    StreamStarted,
    ToolStatus,
)
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["AgentChat"]

_EVENT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Payload types that may become the name of an event. Tools choose payload types, so other characters could forge
fields of the frame."""


class AgentChat(Projection):
    """Makes the frames of `POST /v1/agent/chat`."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(chat_id)
        self._texts: list[str] = []
        self._turn = 0
        self._calls: dict[str, JsonObject] = {}
        self._previews: list[JsonObject] = []

    def body(self) -> JsonObject:
        """Return `{conversation_id, message, tool_calls: [{tool_use_id, name, is_error}], previews: [{type, data}],
        error?}`. A call without a result has no `is_error`. `message` is the model's text, without `retry_text`."""
        body: JsonObject = {
            "conversation_id": self.chat_id,
            "message": "".join(self._texts),
            "tool_calls": list(self._calls.values()),
            "previews": self._previews,
        }
        return body if self.failure is None else {**body, "error": self.failure._asdict()}

    def _show(self, event: Event) -> list[OutFrame]:
        match event:
            case StreamStarted():
                turn, self._turn = self._turn, self._turn + 1
                return [json_frame("message_start", {"turn": turn, "conversation_id": self.chat_id})]
            case RuntimeUpdated() if self._is_retry(event) and self.retry_text:
                return [json_frame("content_chunk", {"chunk": self.retry_text})]
            case StreamDelta():
                return [*self._chunk(event), *self._named_calls(event)]
            case ToolStatus() if event.status in FINAL_TOOL_STATUSES:
                result = {
                    "tool_use_id": event.tool_call_id,
                    "name": event.name,
                    "is_error": event.status != "done",
                }
                self._calls[event.tool_call_id] = result
                return [json_frame("tool_call_result", result)]
            case PayloadAdded(source="preview"):
                kind = event.payload_type if _EVENT_NAME.fullmatch(event.payload_type) else "payload"
                self._previews.append({"type": event.payload_type, "data": event.data})
                return [json_frame(f"{kind}_preview", _preview(kind, event.payload_id, event.data))]
            case _:
                return []

    def _chunk(self, event: StreamDelta) -> list[OutFrame]:
        text = appended_text(event)
        if not text:
            return []
        self._texts.append(text)
        return [json_frame("content_chunk", {"chunk": text})]

    def _named_calls(self, event: StreamDelta) -> list[OutFrame]:
        frames: list[OutFrame] = []
        for op in event.ops:
            for call in op.tool_calls if isinstance(op, SetToolCalls) else ():
                if call.id not in self._calls and call.function.name:
                    self._calls[call.id] = {"tool_use_id": call.id, "name": call.function.name}
                    frames.append(json_frame("tool_call_start", self._calls[call.id]))
        return frames

    def _last(self, outcome: str) -> list[OutFrame]:
        if self.failure is None:
            return [json_frame("message_complete", {})]
        return [json_frame("error", {"message": self.failure.message})]


def _preview(kind: str, payload_id: str, data: JsonObject) -> JsonObject:
    """Return the preview's data, with two additional fields that clients of this endpoint read: the object under the
    name of its type, and its id. For instance, a `workflow_preview` has `workflow` and `workflow_id`, which is null for
    a new object."""
    named = {kind: data.get("object"), f"{kind}_id": data.get("object_id"), "payload_id": payload_id}
    return {**named, **data}
