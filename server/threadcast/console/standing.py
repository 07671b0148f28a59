"""Tracks the state of a watched chat: whether the user may type, which questions wait, and whether the user's messages
were answered.

The module is pure: it takes events and does no I/O. `chat.py` acts on the state.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from threadcast_protocol.fold.phase import Phase, PhaseReader, is_busy
from threadcast_protocol.wire.events import AT_REST

__all__ = ["Standing"]

Json: TypeAlias = Mapping[str, Any]  # Any: events as JSON objects


class Standing:
    """The state of one chat, updated by `feed`.

    `awaited` holds the request ids of messages that were posted here and whose run has not ended. Add an id before you
    post its message. `answered` holds the ids of tool calls that were decided here.
    """

    def __init__(self) -> None:
        self.state = "idle"
        self.model = ""
        self.awaited: set[str] = set()
        self.answered: set[str] = set()
        self.has_failed = False
        self._phases = PhaseReader()
        self._reasons: list[Json] = []
        self._queue_size = 0
        self._taken_up: set[str] = set()

    @property
    def questions(self) -> list[Json]:
        """The questions that the user must decide, without calls in `answered`, because their decisions were already
        sent."""
        return [reason for reason in self._reasons if reason["tool_call_id"] not in self.answered]

    @property
    def phase(self) -> Phase:
        return self._phases.phase

    @property
    def is_busy(self) -> bool:
        """Whether a run is open that an abort would stop, or a message waits for its answer."""
        return is_busy(self.phase) or bool(self.awaited)

    @property
    def wants_line(self) -> bool:
        """Whether the user may type, because the chat rests or asks a question."""
        return bool(self.questions) or not self.is_busy

    def give_up(self, request_id: str) -> None:
        """Stop waiting for the answer to a message that was refused."""
        self.awaited.discard(request_id)
        self.has_failed = True

    def feed(self, event: Json) -> None:
        """Take the next event of the chat, as the JSON object that was sent."""
        self._phases.feed(event)
        match event.get("type"):
            case "snapshot":
                self._take_snapshot(event)
            case "runtime_updated":
                self.state = event["state"]
                if self.state in AT_REST:
                    self.has_failed = event.get("outcome") not in (None, "complete")
                    self._ask([])
            case "queue_updated":
                self._queue_size = event["queue_size"]
            case "thread_updated" if "model" in event:
                self.model = event["model"] or ""
            case "pause_required":
                self._reasons = list(event["reasons"])
            case "pause_cleared":
                self._ask([])
            case "ack":
                self._take_ack(event)
            case _:
                pass
        self._settle()

    def _take_snapshot(self, event: Json) -> None:
        runtime = event["runtime"]
        self.state = runtime["state"]
        self.model = event["thread"].get("model", "")
        self._queue_size = runtime["queue_size"]
        self._ask(list(runtime.get("pause_reasons", ())))
        for ack in event.get("recent_acks", ()):
            self._take_ack(ack)
        self._taken_up |= {message.get("client_request_id", "") for message in event["messages"]} & self.awaited

    def _ask(self, reasons: list[Json]) -> None:
        self._reasons = reasons
        self.answered.clear()

    def _take_ack(self, event: Json) -> None:
        request_id = event["client_request_id"]
        if not event["accepted"]:
            self.answered.clear()  # a question stays open if its decision was refused
        if request_id in self.awaited:
            if event["accepted"]:
                self._taken_up.add(request_id)
            else:
                self.give_up(request_id)

    def _settle(self) -> None:
        # The event with the state `generating` of a run comes before the `queue_updated` that removes the run's command
        # from the queue (PROTOCOL §5). So in a chat at rest with an empty queue, the run of every command that was
        # taken up has ended.
        if self.state in AT_REST and self._queue_size == 0:
            self.awaited -= self._taken_up
            self._taken_up.clear()
