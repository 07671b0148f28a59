"""What a chat is doing, in the five words that a screen needs: idle, waiting, streaming, paused, stopped (PROTOCOL §7).

Phases are a reading of `runtime`, never a second truth: nothing stores them, and the server does not send them. Pure,
for clients: `phase_of` reads one moment, `PhaseReader` follows the events as they stand on the wire.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from protocol.events import AT_REST

__all__ = ["Phase", "PhaseReader", "is_busy", "phase_of"]

Phase: TypeAlias = Literal["idle", "waiting", "streaming", "paused", "stopped"]

Json: TypeAlias = Mapping[str, Any]  # Any: events as they stand on the wire


def phase_of(state: str, outcome: str | None, *, is_answering: bool) -> Phase:
    """`is_answering`: the round's `stream_started` has come. `stopped` is the moment of an abort or a fatal error: a
    screen shows it and then goes on as when idle."""
    if state in AT_REST:
        return "stopped" if state == "error" or outcome == "aborted" else "idle"
    if state == "paused":
        return "paused"
    return "streaming" if state == "generating" and is_answering else "waiting"


def is_busy(phase: Phase) -> bool:
    """A run is open: what is sent now waits in the queue, and an abort has something to stop."""
    return phase in ("waiting", "streaming", "paused")


class PhaseReader:
    """The phase after each event of one chat, from its first snapshot on."""

    def __init__(self) -> None:
        self._state = "idle"
        self._outcome: str | None = None
        self._is_answering = False

    @property
    def phase(self) -> Phase:
        return phase_of(self._state, self._outcome, is_answering=self._is_answering)

    def feed(self, event: Json) -> Phase:
        match event.get("type"):
            case "snapshot":
                runtime, messages = event["runtime"], event["messages"]
                self._state, self._outcome = runtime["state"], runtime.get("outcome")
                last: Json = messages[-1] if messages else {}
                self._is_answering = last.get("role") == "assistant" and not last.get("finish_reason")
            case "runtime_updated":
                self._state, self._outcome = event["state"], event.get("outcome")
                self._is_answering = False  # each round says `generating` before its `stream_started`
            case "stream_started":
                self._is_answering = True
            case _:
                pass
        return self.phase
