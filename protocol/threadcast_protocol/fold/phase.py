"""The phase of a chat for a user interface: idle, waiting, streaming, paused or stopped (PROTOCOL §7).

Clients derive phases from `runtime`; phases are never stored or sent. `phase_of` computes the phase of one state.
`PhaseReader` follows the decoded JSON of the events.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from threadcast_protocol.wire.events import AT_REST

__all__ = ["Phase", "PhaseReader", "is_busy", "phase_of"]

Phase: TypeAlias = Literal["idle", "waiting", "streaming", "paused", "stopped"]

Json: TypeAlias = Mapping[str, Any]  # Any: the decoded JSON of an event


def phase_of(state: str, outcome: str | None, *, is_answering: bool) -> Phase:
    """Return the phase of a chat. `is_answering` means that the `stream_started` of the round has arrived. After an
    abort or a fatal error the phase is `stopped`; user interfaces may show `stopped`, and should otherwise treat it
    like `idle`."""
    if state in AT_REST:
        return "stopped" if state == "error" or outcome == "aborted" else "idle"
    if state == "paused":
        return "paused"
    return "streaming" if state == "generating" and is_answering else "waiting"


def is_busy(phase: Phase) -> bool:
    """Return whether a run is open. New messages then wait in the queue, and an abort ends the run."""
    return phase in ("waiting", "streaming", "paused")


class PhaseReader:
    """Tracks the phase of one chat from its first snapshot on."""

    def __init__(self) -> None:
        self._state = "idle"
        self._outcome: str | None = None
        self._is_answering = False

    @property
    def phase(self) -> Phase:
        """The phase after the last event."""
        return phase_of(self._state, self._outcome, is_answering=self._is_answering)

    def feed(self, event: Json) -> Phase:
        """Take the next event, and return the phase after it."""
        match event.get("type"):
            case "snapshot":
                runtime, messages = event["runtime"], event["messages"]
                self._state, self._outcome = runtime["state"], runtime.get("outcome")
                last: Json = messages[-1] if messages else {}
                self._is_answering = last.get("role") == "assistant" and not last.get("finish_reason")
            case "runtime_updated":
                self._state, self._outcome = event["state"], event.get("outcome")
                self._is_answering = False  # each round reports `generating` before its `stream_started`
            case "stream_started":
                self._is_answering = True
        return self.phase
