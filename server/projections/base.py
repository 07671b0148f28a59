"""What every projection is: events of one run in, frames out, closed by exactly one last frame (PROTOCOL §14).

`RunSlice` says which of a chat's events belong to the caller's run; a `Projection` turns those into the frames of its
wire. Both are pure and know neither sockets nor the store; `server/api/oneshot.py` drives them. The one rule: after
the last frame nothing comes, whatever the log goes on to say.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

from protocol.deltas import AppendContent
from protocol.events import (
    Ack,
    ErrorHappened,
    Event,
    MessageAdded,
    PassThrough,
    QueueUpdated,
    RuntimeUpdated,
    StreamDelta,
    StreamStarted,
    ThreadUpdated,
)
from protocol.messages import JsonObject
from server.agent.answer.guard import RETRY_STATUS

__all__ = ["AWAITS_DECISION", "Failure", "OutFrame", "Projection", "RunSlice", "appended_text"]

AWAITS_DECISION = "waiting for approval: a tool call of this chat waits for a person's decision; the run goes on then"
"""A one-shot wire has no way to ask; who watches the chat natively can decide (PROTOCOL §11)."""

_ENDED_SENTENCES = {
    "error": ("internal", "the run failed"),
    "aborted": ("aborted", "the run was aborted"),
    "interrupted": ("interrupted", "the run was interrupted by a newer message"),
    "limit": ("max_tool_rounds", "the run reached its limit of rounds"),
}
"""For outcomes that no `error` event explained: code and sentence."""


class OutFrame(NamedTuple):
    """One frame of a foreign wire: `event` (None: no event line) and `data`, which may have line ends."""

    event: str | None
    data: str


class Failure(NamedTuple):
    """Why there is no whole answer: one of the codes of PROTOCOL §17, and a sentence fit for clients."""

    code: str
    message: str


class RunSlice:
    """Finds the run of the message with `request_id` in a chat's events, from before it was posted."""

    def __init__(self, request_id: str) -> None:
        self.run_id: str | None = None
        self.refusal: Failure | None = None
        self.has_ended = False
        self.is_behind_pause = False
        self._request_id = request_id
        self._open_run_id: str | None = None

    @property
    def is_over(self) -> bool:
        """Nothing of this request is left that could be stopped."""
        return self.has_ended or self.refusal is not None

    def take(self, event: Event) -> bool:
        """Whether `event` belongs to the run. A run is announced before its message, so its id is known then."""
        if self.is_over:
            return False
        if self.run_id is None:
            self._look_for_run(event)
            return False
        if isinstance(event, RuntimeUpdated):
            self.has_ended = event.outcome is not None  # at most one run is open, and ours is
        return not isinstance(event, Ack | QueueUpdated | ThreadUpdated | PassThrough)

    def _look_for_run(self, event: Event) -> None:
        match event:
            case RuntimeUpdated():
                self._open_run_id = event.run_id
                self.is_behind_pause = event.state == "paused"
            case MessageAdded(message=message) if message.client_request_id == self._request_id:
                self.run_id = self._open_run_id
            case Ack(client_request_id=self._request_id, accepted=False):
                self.refusal = _refusal_of(event)
            case _:
                pass


def _refusal_of(ack: Ack) -> Failure:
    return Failure(str(ack.result.get("code", "conflict")), str(ack.result.get("error", "the message was refused")))


class Projection(ABC):
    """One run on one foreign wire. `failure` is set with the last frame when the run did not complete.

    `retry_text`: the text that the chat's reply guard sends callers before the model answers again; '' sends nothing.
    `shows_diagnostics`: the wire has a place for the run's trace; who feeds it sets `diagnostics` before the run's last
    event, for a caller who may see it.
    """

    shows_diagnostics = False

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.retry_text = ""
        self.diagnostics: JsonObject | None = None
        self.is_done = False
        self.failure: Failure | None = None
        self._error: Failure | None = None
        self._answers: set[str] = set()
        self._retried_round: int | None = None

    def begin(self) -> list[OutFrame]:
        """What is said as soon as the message is kept, before any run."""
        return []

    def feed(self, event: Event) -> list[OutFrame]:
        """The frames of the run's next event; none once it is done."""
        if self.is_done:
            return []
        match event:
            case RuntimeUpdated(outcome=str(outcome)):
                self.is_done = True
                if outcome != "complete":
                    self.failure = self._error or Failure(*_ENDED_SENTENCES.get(outcome, _ENDED_SENTENCES["error"]))
                return self._last(outcome)
            case RuntimeUpdated(state="paused"):
                return self.fail("conflict", AWAITS_DECISION)
            case ErrorHappened():
                self._error = Failure(event.code, event.message)
            case StreamStarted():
                self._answers.add(event.message_id)
            case _:
                pass
        return self._show(event)

    def fail(self, code: str, message: str) -> list[OutFrame]:
        """The last frames when the run cannot be told to its end: refused, paused, or out of reach."""
        if self.is_done:
            return []
        self.is_done = True
        self.failure = self._error = Failure(code, message)
        return [*self._show(ErrorHappened(code=code, message=message, fatal=True)), *self._last("error")]

    @abstractmethod
    def body(self) -> JsonObject:
        """The final payload as one JSON body (NET-9)."""

    @abstractmethod
    def _show(self, event: Event) -> list[OutFrame]:
        """The frames of an event that does not end the run."""

    @abstractmethod
    def _last(self, outcome: str) -> list[OutFrame]:
        """The frames that end the wire; the very last of them is the terminal one."""

    def _is_retry(self, event: RuntimeUpdated) -> bool:
        """The reply guard refused an answer and the model is asked again. True once for each such round, which a crash
        may announce twice."""
        if event.status_text != RETRY_STATUS or event.round == self._retried_round:
            return False
        self._retried_round = event.round
        return True

    def _is_mine(self, message_id: str) -> bool:
        """An answer of this run, not a message that somebody edits meanwhile."""
        return message_id in self._answers


def appended_text(delta: StreamDelta) -> str:
    """What the delta adds to the answer that people read."""
    return "".join(op.text for op in delta.ops if isinstance(op, AppendContent))
