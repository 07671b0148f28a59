"""`POST /v1/agent/chat`: named JSON events around each turn of the model (PROTOCOL §14).

`message_start` for each model call (turns count from 0), `content_chunk`, `tool_call_start` as soon as a call has a
name, `tool_call_result`, `<type>_preview`; at the end `message_complete` or, when the run did not complete, `error` and
nothing after it. `server/api/oneshot.py` feeds it. An error is sent when the run is over, because a limit may still be
followed by a summary.
"""

import re

from protocol.codec import encode
from protocol.deltas import SetToolCalls
from protocol.events import (
    FINAL_TOOL_STATUSES,
    Event,
    PayloadAdded,
    RuntimeUpdated,
    StreamDelta,
    StreamStarted,
    ToolStatus,
)
from protocol.messages import JsonObject
from server.projections.base import OutFrame, Projection, appended_text

__all__ = ["AgentChat"]

_EVENT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Payload types become names of events here; a tool's own words must not forge a field of the frame."""


class AgentChat(Projection):
    """Frames of `POST /v1/agent/chat`."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(chat_id)
        self._texts: list[str] = []
        self._turn = 0
        self._calls: dict[str, JsonObject] = {}
        self._previews: list[JsonObject] = []

    def body(self) -> JsonObject:
        """`{conversation_id, message, tool_calls: [{tool_use_id, name, is_error}], previews: [{type, data}], error?}`;
        `is_error` is absent for a call that has no result. `message` is what the model wrote, without `retry_text`."""
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
                return [_json("message_start", {"turn": turn, "conversation_id": self.chat_id})]
            case RuntimeUpdated() if self._is_retry(event) and self.retry_text:
                return [_json("content_chunk", {"chunk": self.retry_text})]
            case StreamDelta():
                return [*self._chunk(event), *self._named_calls(event)]
            case ToolStatus() if event.status in FINAL_TOOL_STATUSES:
                result = {
                    "tool_use_id": event.tool_call_id,
                    "name": event.name,
                    "is_error": event.status != "done",
                }
                self._calls[event.tool_call_id] = result
                return [_json("tool_call_result", result)]
            case PayloadAdded(source="preview"):
                kind = event.payload_type if _EVENT_NAME.fullmatch(event.payload_type) else "payload"
                self._previews.append({"type": event.payload_type, "data": event.data})
                return [_json(f"{kind}_preview", _preview(kind, event.payload_id, event.data))]
            case _:
                return []

    def _chunk(self, event: StreamDelta) -> list[OutFrame]:
        text = appended_text(event)
        if not text:
            return []
        self._texts.append(text)
        return [_json("content_chunk", {"chunk": text})]

    def _named_calls(self, event: StreamDelta) -> list[OutFrame]:
        frames: list[OutFrame] = []
        for op in event.ops:
            for call in op.tool_calls if isinstance(op, SetToolCalls) else ():
                if call.id not in self._calls and call.function.name:
                    self._calls[call.id] = {"tool_use_id": call.id, "name": call.function.name}
                    frames.append(_json("tool_call_start", self._calls[call.id]))
        return frames

    def _last(self, outcome: str) -> list[OutFrame]:
        if self.failure is None:
            return [_json("message_complete", {})]
        return [_json("error", {"message": self.failure.message})]


def _preview(kind: str, payload_id: str, data: JsonObject) -> JsonObject:
    """The preview's data, with the object once more under the name of its type and its id beside it, as clients of this
    wire read them: a `workflow_preview` has `workflow` and `workflow_id`, null where the object is new."""
    named = {kind: data.get("object"), f"{kind}_id": data.get("object_id"), "payload_id": payload_id}
    return {**named, **data}


def _json(event: str, data: JsonObject) -> OutFrame:
    return OutFrame(event, encode(data).decode())
