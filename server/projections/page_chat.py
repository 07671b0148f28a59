"""`POST /api/chat/stream`: typed `data:` frames for a chat beside a page, and a whole payload last (PROTOCOL §14).

`status`, `text_delta`, `tool_start`, `tool_progress`, `tool_complete`; then exactly one of `complete`, `error`, and
`cancelled` when the run was aborted. A run that reached its limit of rounds is `complete`. This wire alone marks in the
text where a call stood: `[[tool:ID]]`, its `tool_use_id` (FE-8). `server/api/oneshot.py` feeds it. The deltas joined
are `payload.message`, unless an answer was cleaned or begun again after a crash; then the payload has the last word.
"""

from protocol.codec import encode
from protocol.events import (
    FINAL_TOOL_STATUSES,
    Event,
    MessageAdded,
    MessageRemoved,
    MessageUpdated,
    PayloadAdded,
    PayloadUpdated,
    RuntimeUpdated,
    StreamDelta,
    StreamStarted,
    ToolStatus,
)
from protocol.messages import JsonObject, Message, text_of
from server.projections.base import Failure, OutFrame, Projection, appended_text

__all__ = ["PageChat", "tool_marker"]


def tool_marker(tool_use_id: str) -> str:
    """What stands in the text at the place of a call."""
    return f"[[tool:{tool_use_id}]]"


class PageChat(Projection):
    """Frames of `POST /api/chat/stream`."""

    shows_diagnostics = True

    def __init__(self, chat_id: str) -> None:
        super().__init__(chat_id)
        self._places: dict[str, list[str]] = {}  # answers and calls in their order, each with its text or its marker
        self._history: dict[str, JsonObject] = {}
        self._final: Message | None = None
        self._payload: JsonObject | None = None
        self._cut_short: tuple[str, Failure] | None = None

    def begin(self) -> list[OutFrame]:
        return [self._status("queued")]

    def body(self) -> JsonObject:
        """`{message, suggested_values, suggested_actions, custom_payload {payload_id, type, summary, data},
        tool_history [{tool_name, tool_use_id, input, status, output}], conversation_id}`, `failure {outcome, code,
        error}` when the run did not complete, and `diagnostics`, its trace, for callers who may see it."""
        body: JsonObject = {
            "message": "".join(text for place in self._places.values() for text in place),
            "suggested_values": self._final.suggested_values if self._final else [],
            "suggested_actions": self._final.suggested_actions if self._final else [],
            "custom_payload": self._payload,
            "tool_history": list(self._history.values()),
            "conversation_id": self.chat_id,
        }
        if self._cut_short is not None:
            outcome, (code, message) = self._cut_short
            body["failure"] = {"outcome": outcome, "code": code, "error": message}
        return body | self._diagnostics()

    def _show(self, event: Event) -> list[OutFrame]:
        match event:
            case StreamStarted():
                self._places.setdefault(event.message_id, [])
                return [self._status("generating")]
            case RuntimeUpdated() if self._is_retry(event) and self.retry_text:
                return [self._status(self.retry_text)]
            case StreamDelta() if text := appended_text(event):
                self._places.setdefault(event.message_id, []).append(text)
                return [_frame("text_delta", {"text": text})]
            case ToolStatus():
                return self._tool(event)
            case MessageAdded(message=message):
                self._hear(message)
            case MessageUpdated(message=message):
                self._hear(message)
            case MessageRemoved() if self._is_mine(event.message_id):
                self._places.pop(event.message_id, None)
            case PayloadAdded() | PayloadUpdated() if event.source != "preview":
                self._payload = {
                    "payload_id": event.payload_id,
                    "type": event.payload_type,
                    "summary": event.summary,
                    "data": event.data,
                }
            case _:
                pass
        return []

    def _tool(self, event: ToolStatus) -> list[OutFrame]:
        if event.status == "progress":
            words = {"tool": event.name, "stage": event.stage, "message": event.message, "progress": event.progress}
            return [_frame("tool_progress", words)]
        if event.status != "running" and event.status not in FINAL_TOOL_STATUSES:
            return []
        frames: list[OutFrame] = []
        call_id, call = event.tool_call_id, self._history.get(event.tool_call_id)
        if event.status == "running":
            frames.append(self._status(f"Running {event.name}…"))
        if call is None:
            given = {"tool_use_id": call_id, "input": event.input or {}}
            call = self._history[call_id] = {"tool_name": event.name, **given}
            self._places[f"call {call_id}"] = [tool_marker(call_id)]
            frames.append(_frame("text_delta", {"text": tool_marker(call_id)}))
            frames.append(_frame("tool_start", {"tool": event.name, **given}))
        if event.status in FINAL_TOOL_STATUSES:
            call["status"] = event.status
            frames.append(_frame("tool_complete", {"tool": event.name, "index": event.index}))
        return frames

    def _hear(self, message: Message) -> None:
        """The final word on an answer of this run, or what a tool of it gave."""
        if self._is_mine(message.message_id):
            self._final = message
            self._places[message.message_id] = [text_of(message.content)]
        elif message.role == "tool" and message.tool_call_id in self._history:
            self._history[message.tool_call_id]["output"] = text_of(message.content)

    def _last(self, outcome: str) -> list[OutFrame]:
        self._cut_short = None if self.failure is None else (outcome, self.failure)
        if outcome == "aborted":
            return [_frame("cancelled", {"conversation_id": self.chat_id})]
        if outcome == "limit":  # an answer cut short, and no failure
            self.failure = None
        if self.failure is None:
            return [_frame("complete", {"payload": self.body()})]
        told = {**self.failure._asdict(), "conversation_id": self.chat_id}
        return [_frame("error", told | self._diagnostics())]

    def _diagnostics(self) -> JsonObject:
        return {} if self.diagnostics is None else {"diagnostics": self.diagnostics}

    def _status(self, words: str) -> OutFrame:
        return _frame("status", {"message": words, "conversation_id": self.chat_id})


def _frame(kind: str, fields: JsonObject) -> OutFrame:
    return OutFrame(None, encode({"type": kind, **fields}).decode())
