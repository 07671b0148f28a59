"""`POST /chat`: raw text under named events, for the simplest of clients (PROTOCOL §14).

`session` first, then `text` (raw text, not JSON), `tool_status`, `data`, `error`, and always `done` last. A failing
tool is shown as its status and as an `error` with code `tool_error`; neither ends the run. It knows nothing of HTTP;
`server/api/oneshot.py` feeds it. The one rule: the text frames joined are the answer.
"""

from protocol.codec import encode
from protocol.events import (
    FINAL_TOOL_STATUSES,
    ErrorHappened,
    Event,
    PayloadAdded,
    StreamDelta,
    ToolStatus,
)
from protocol.messages import JsonObject
from server.projections.base import OutFrame, Projection, appended_text

__all__ = ["TextChat"]


class TextChat(Projection):
    """Frames of `POST /chat`."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(chat_id)
        self._texts: list[str] = []
        self._tools: list[JsonObject] = []
        self._data: list[JsonObject] = []

    def begin(self) -> list[OutFrame]:
        return [_json("session", {"session_id": self.chat_id})]

    def body(self) -> JsonObject:
        """`{session_id, text, tools: [{tool, status}], data: [{type, payload}], error?: {code, message}}`."""
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
                return [_json("data", self._data[-1])]
            case ErrorHappened():
                return [_json("error", {"code": event.code, "message": event.message})]
            case _:
                return []

    def _tool(self, event: ToolStatus) -> list[OutFrame]:
        if event.status == "running":
            return [_json("tool_status", {"tool": event.name, "status": "calling"})]
        if event.status not in FINAL_TOOL_STATUSES:
            return []
        status = "done" if event.status == "done" else "error"
        self._tools.append({"tool": event.name, "status": status})
        frames = [_json("tool_status", self._tools[-1])]
        if status == "error":
            words = {"code": "tool_error", "message": f"the tool {event.name} gave no result: {event.status}"}
            frames.append(_json("error", words))
        return frames

    def _last(self, outcome: str) -> list[OutFrame]:
        frames = [_json("done", {"session_id": self.chat_id})]
        if self.failure is not None and self._error is None:  # an outcome that no event explained
            frames.insert(0, _json("error", self.failure._asdict()))
        return frames


def _json(event: str, data: JsonObject) -> OutFrame:
    return OutFrame(event, encode(data).decode())
