"""The frames of `POST /api/chat/stream`, for a chat beside a page: typed `data:` frames, of which the last contains the
whole answer (PROTOCOL §14).

The types are `status`, `text_delta`, `tool_start`, `tool_progress` and `tool_complete`. The last frame is `complete`,
`error`, or, after an abort, `cancelled`; a run that reached its limit of rounds is `complete`. Only this format marks
the place of a tool call in the text, with `[[tool:ID]]`, where ID is its `tool_use_id` (FE-8). The joined deltas equal
`payload.message`, unless an answer was cleaned, or generated again after a crash. In these cases the text of the
payload is correct.
"""

from threadcast.compat.base import Failure, OutFrame, Projection, appended_text, json_frame
from threadcast_protocol.wire.events import (
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
from threadcast_protocol.wire.messages import JsonObject, Message, text_of

__all__ = ["PageChat", "tool_marker"]


def tool_marker(tool_use_id: str) -> str:
    """Return the text that marks the place of a tool call."""
    return f"[[tool:{tool_use_id}]]"


class PageChat(Projection):
    """Makes the frames of `POST /api/chat/stream`."""

    shows_diagnostics = True

    def __init__(self, chat_id: str) -> None:
        super().__init__(chat_id)
        self._pieces: dict[str, list[str]] = {}  # the texts of answers and the markers of calls, in their order
        self._history: dict[str, JsonObject] = {}
        self._final: Message | None = None
        self._payload: JsonObject | None = None
        self._cut_short: tuple[str, Failure] | None = None

    def begin(self) -> list[OutFrame]:
        return [self._status("queued")]

    def body(self) -> JsonObject:
        """Return `{message, suggested_values, suggested_actions, custom_payload {payload_id, type, summary, data},
        tool_history [{tool_name, tool_use_id, input, status, output}], conversation_id}`. There is also `failure
        {outcome, code, error}` if the run did not complete, and `diagnostics`, the run's trace, for callers who may see
        it."""
        body: JsonObject = {
            "message": "".join(text for piece in self._pieces.values() for text in piece),
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
                self._pieces.setdefault(event.message_id, [])
                return [self._status("generating")]
            case RuntimeUpdated() if self._is_retry(event) and self.retry_text:
                return [self._status(self.retry_text)]
            case StreamDelta() if text := appended_text(event):
                self._pieces.setdefault(event.message_id, []).append(text)
                return [_frame("text_delta", {"text": text})]
            case ToolStatus():
                return self._tool(event)
            case MessageAdded(message=message):
                self._hear(message)
            case MessageUpdated(message=message):
                self._hear(message)
            case MessageRemoved() if self._is_mine(event.message_id):
                self._pieces.pop(event.message_id, None)
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
            self._pieces[f"call {call_id}"] = [tool_marker(call_id)]
            frames.append(_frame("text_delta", {"text": tool_marker(call_id)}))
            frames.append(_frame("tool_start", {"tool": event.name, **given}))
        if event.status in FINAL_TOOL_STATUSES:
            call["status"] = event.status
            frames.append(_frame("tool_complete", {"tool": event.name, "index": event.index}))
        return frames

    def _hear(self, message: Message) -> None:
        """Record a final answer of this run, or the result of one of its tools."""
        if self._is_mine(message.message_id):
            self._final = message
            self._pieces[message.message_id] = [text_of(message.content)]
        elif message.role == "tool" and message.tool_call_id in self._history:
            self._history[message.tool_call_id]["output"] = text_of(message.content)

    def _last(self, outcome: str) -> list[OutFrame]:
        self._cut_short = None if self.failure is None else (outcome, self.failure)
        if outcome == "aborted":
            return [_frame("cancelled", {"conversation_id": self.chat_id})]
        if outcome == "limit":  # the answer was cut short, which is no failure here
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
    return json_frame(None, {"type": kind, **fields})
