"""Where a watched chat stands, as far as a person at a terminal must know: may they type, is there a question, did
their own message get its answer.

Pure, like `transcript.py` beside it: events in, a few facts out. `chat.py` acts on them.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from protocol.events import AT_REST
from protocol.phase import Phase, PhaseReader, is_busy

__all__ = ["Standing"]

Json: TypeAlias = Mapping[str, Any]  # Any: events as they stand on the wire


class Standing:
    """`awaited` are the request ids of messages posted here whose run has not come to rest: add them before posting.
    `answered` are the calls decided here.
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
        """What a person must decide, without the calls in `answered`: their decisions are on the way."""
        return [reason for reason in self._reasons if reason["tool_call_id"] not in self.answered]

    @property
    def phase(self) -> Phase:
        return self._phases.phase

    @property
    def is_busy(self) -> bool:
        """There is something that an abort would stop, or that an answer is still owed for."""
        return is_busy(self.phase) or bool(self.awaited)

    @property
    def wants_line(self) -> bool:
        """A person may type: the chat rests, or asks something."""
        return bool(self.questions) or not self.is_busy

    def give_up(self, request_id: str) -> None:
        """This message will get no answer: it was refused."""
        self.awaited.discard(request_id)

    def feed(self, event: Json) -> None:
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
        if request_id in self.awaited:
            if event["accepted"]:
                self._taken_up.add(request_id)
            else:
                self.awaited.discard(request_id)
                self.has_failed = True

    def _settle(self) -> None:
        # A run's `generating` comes before the `queue_updated` that takes its command out of the queue (PROTOCOL §5):
        # at rest with an empty queue, everything that was taken up has had its run.
        if self.state in AT_REST and self._queue_size == 0:
            self.awaited -= self._taken_up
            self._taken_up.clear()
