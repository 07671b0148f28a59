"""The base class of projections, which turn the events of one run into frames (PROTOCOL §14).

`RunSlice` finds the events of the caller's run among the chat's events. A `Projection` turns these events into frames.
Exactly one frame is the last, and later events of the log are ignored. Both classes do no I/O; `compat/oneshot.py` uses
them.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

from threadcast.profiles.reply_guard import RETRY_STATUS
from threadcast_protocol.fold.state import ChatState
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.events import (
    Ack,
    ErrorHappened,
    Event,
    MessageAdded,
    PassThrough,
    PauseCleared,
    PauseRequired,
    QueueUpdated,
    RuntimeUpdated,
    StreamDelta,
    StreamStarted,
    ThreadUpdated,
)
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["AWAITS_DECISION", "Failure", "OutFrame", "Projection", "RunSlice", "appended_text", "json_frame"]

AWAITS_DECISION = "waiting for approval: a tool call of this chat waits for a person's decision; the run goes on then"
"""The error of a run that waits for an approval. One-shot clients cannot decide, but other clients of the same chat can
(PROTOCOL §11)."""

_ENDED_SENTENCES = {
    "error": ("internal", "the run failed"),
    "aborted": ("aborted", "the run was aborted"),
    "interrupted": ("interrupted", "the run was interrupted by a newer message"),
    "limit": ("max_tool_rounds", "the run reached its limit of rounds"),
}
"""The code and message of a failure for each outcome, used if the run had no `error` event."""


class OutFrame(NamedTuple):
    """One SSE frame. `event` is the name of the event, None for a frame without an event line. `data` may contain line
    ends."""

    event: str | None
    data: str


def json_frame(event: str | None, data: JsonObject) -> OutFrame:
    """Return a frame whose data is one line of JSON."""
    return OutFrame(event, encode(data).decode())


class Failure(NamedTuple):
    """The reason why an answer is incomplete: one of the codes of PROTOCOL §17, and a message for clients."""

    code: str
    message: str


class RunSlice:
    """Finds the run of the message with `request_id` in a chat's events, or, with `run_id`, the events of that open
    run. The slice must receive all events of the chat from a time before the message is posted."""

    def __init__(self, request_id: str, run_id: str | None = None) -> None:
        self.run_id = run_id
        self.refusal: Failure | None = None
        self.has_ended = False
        self.is_behind_pause = False
        self._request_id = request_id
        self._open_run_id: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run has ended or its message was refused, so that there is no run to abort."""
        return self.has_ended or self.refusal is not None

    def take(self, event: Event) -> bool:
        """Return whether `event` belongs to the run. The log announces a run before its message, so the run's id is
        known when the message comes."""
        if self.is_over:
            return False
        if self.run_id is None:
            self._look_for_run(event)
            return False
        if isinstance(event, RuntimeUpdated):
            self.has_ended = event.outcome is not None  # the event is about this run, because at most one run is open
        return not isinstance(event, Ack | QueueUpdated | ThreadUpdated | PassThrough)

    def _look_for_run(self, event: Event) -> None:
        match event:
            case RuntimeUpdated():
                self._open_run_id = event.run_id
                self.is_behind_pause = event.state == "paused"
            case PauseRequired():
                self.is_behind_pause = True
            case PauseCleared():
                self.is_behind_pause = False
            case MessageAdded(message=message) if message.client_request_id == self._request_id:
                self.run_id = self._open_run_id
            case Ack(client_request_id=self._request_id, accepted=False):
                self.refusal = _refusal_of(event)
            case _:
                pass


def _refusal_of(ack: Ack) -> Failure:
    return Failure(str(ack.result.get("code", "conflict")), str(ack.result.get("error", "the message was refused")))


class Projection(ABC):
    """Turns the events of one run into frames of a foreign format. `failure` is set with the last frame if the run did
    not complete.

    The text `retry_text` is sent when the chat's reply guard has refused an answer and the model answers again; with ''
    nothing is sent. `shows_diagnostics` is true if the format has a field for the run's trace. For a caller who may see
    the trace, `diagnostics` is set to the trace before the run's last event.
    """

    shows_diagnostics = False

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.retry_text = ""
        self.diagnostics: object = None
        self.is_done = False
        self.failure: Failure | None = None
        self._error: Failure | None = None
        self._answers: set[str] = set()
        self._retried_round: int | None = None

    def begin(self) -> list[OutFrame]:
        """Return the frames to send as soon as the message is stored, before its run begins."""
        return []

    def join(self, state: ChatState) -> list[OutFrame]:
        """Return the first frames for a caller who joins the chat in this state. Sets `is_done` if no further frames
        follow."""
        raise NotImplementedError

    def feed(self, event: Event) -> list[OutFrame]:
        """Return the frames of the run's next event; [] after the last frame."""
        if self.is_done:
            return []
        match event:
            case RuntimeUpdated(outcome=str(outcome)):
                self.is_done = True
                if outcome != "complete":
                    self.failure = self._error or Failure(*_ENDED_SENTENCES.get(outcome, _ENDED_SENTENCES["error"]))
                return self._last(outcome)
            case PauseRequired() | RuntimeUpdated(state="paused"):  # a tool that asks a person does not pause its run
                return self._pause(event)
            case ErrorHappened(details={"task": "title"}):
                return []  # this error is about the chat's title, not about the run
            case ErrorHappened():
                self._error = Failure(event.code, event.message)
            case StreamStarted():
                self._answers.add(event.message_id)
            case _:
                pass
        return self._show(event)

    def fail(self, code: str, message: str) -> list[OutFrame]:
        """Return the last frames for a run whose end cannot be shown, because it was refused or paused, or its log
        cannot be read."""
        if self.is_done:
            return []
        self.is_done = True
        self.failure = self._error = Failure(code, message)
        return [*self._show(ErrorHappened(code=code, message=message, fatal=True)), *self._last("error")]

    def failed_body(self) -> JsonObject:
        """Return the JSON body of a run that did not complete, for callers that want no stream."""
        failure = self.failure or Failure("internal", "the run failed")
        return {**self.body(), "detail": failure.message, "code": failure.code}  # as every error has (PROTOCOL §1)

    @abstractmethod
    def body(self) -> JsonObject:
        """Return the JSON body for callers that want no stream (NET-9)."""

    def _pause(self, event: Event) -> list[OutFrame]:
        """Return the frames of a run that waits for a person. By default these frames end the stream, because the
        formats of one-shot endpoints cannot ask a person."""
        return self.fail("conflict", AWAITS_DECISION)

    @abstractmethod
    def _show(self, event: Event) -> list[OutFrame]:
        """Return the frames of an event that does not end the run."""

    @abstractmethod
    def _last(self, outcome: str) -> list[OutFrame]:
        """Return the frames that end the stream; clients stop reading after the last of them."""

    def _is_retry(self, event: RuntimeUpdated) -> bool:
        """Return whether the reply guard refused an answer, so that the model answers again. Returns True only once for
        each repeated round, because a round may be announced twice after a crash."""
        if event.status_text != RETRY_STATUS or event.round == self._retried_round:
            return False
        self._retried_round = event.round
        return True

    def _is_mine(self, message_id: str) -> bool:
        """Return whether the message is an answer of this run, and not an answer that a user is editing."""
        return message_id in self._answers


def appended_text(delta: StreamDelta) -> str:
    """Return the text that the delta adds to the visible answer."""
    return "".join(op.text for op in delta.ops if isinstance(op, AppendContent))
