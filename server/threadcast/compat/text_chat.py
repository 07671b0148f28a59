"""The frames of `POST /chat`: named events with plain text, for the simplest clients (PROTOCOL §14).

The first event is `session`. Then come `text` (plain text, not JSON), `tool_status`, `data` and `error`; the last event
is always `done`. The joined `text` frames are the answer. A tool's failure is reported by its status and by an `error`
with the code `tool_error`; these frames do not end the run.
"""

from threadcast.compat.base import OutFrame, Projection, appended_text, json_frame
from threadcast_protocol.wire.events import (
    FINAL_TOOL_STATUSES,
    ErrorHappened,
    Event,
    PayloadAdded,
    StreamDelta,
    ToolStatus,
)
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["TextChat"]


class TextChat(Projection):
    """Makes the frames of `POST /chat`."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(chat_id)
        self._texts: list[str] = []
        self._tools: list[JsonObject] = []
        self._data: list[JsonObject] = []

    def begin(self) -> list[OutFrame]:
        return [json_frame("session", {"session_id": self.chat_id})]

    def body(self) -> JsonObject:
        """Return `{session_id, text, tools: [{tool, status}], data: [{type, payload}], error?: {code, message}}`."""
        body: JsonObject = {
            "session_id": self.chat_id,
            "text": "".join(self._texts),
            "tools": self._tools,
            "data": self._data,
        }
        return body if self.failure is None else {**body, "error": self.failure._asdict()}

    def _show(self, event: Event) -> list[OutFrame]:
        match event:
            case StreamDelta() if text := appended_text(event):
                self._texts.append(text)
                return [OutFrame("text", text)]
            case ToolStatus():
                return self._tool(event)
            case PayloadAdded():
                self._data.append({"type": event.payload_type, "payload": event.data})
                return [json_frame("data", self._data[-1])]
            case ErrorHappened():
                return [json_frame("error", {"code": event.code, "message": event.message})]
            case _:
                return []

    def _tool(self, event: ToolStatus) -> list[OutFrame]:
        if event.status == "running":
            return [json_frame("tool_status", {"tool": event.name, "status": "calling"})]
        if event.status not in FINAL_TOOL_STATUSES:
            return []
        status = "done" if event.status == "done" else "error"
        self._tools.append({"tool": event.name, "status": status})
        frames = [json_frame("tool_status", self._tools[-1])]
        if status == "error":
            words = {"code": "tool_error", "message": f"the tool {event.name} gave no result: {event.status}"}
            frames.append(json_frame("error", words))
        return frames

    def _last(self, outcome: str) -> list[OutFrame]:
        frames = [json_frame("done", {"session_id": self.chat_id})]
        if self.failure is not None and self._error is None:  # no event has given a reason for the outcome
            frames.insert(0, json_frame("error", self.failure._asdict()))
        return frames
