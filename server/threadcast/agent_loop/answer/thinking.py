"""Measures how long a model thinks before it answers: `reasoning_ms` in its message's `extra` (PROTOCOL §8).

The time runs from the first piece of shown reasoning to the first word or call after the reasoning. The time of later
reasoning is added. While the model thinks, the figure is published once a second, so that readers see it grow. An
answer that is stopped, or whose worker dies, keeps its last figure.
"""

import time
from collections.abc import Callable, Iterator, Sequence

from threadcast.agent_loop.answer.assembler import Assembler
from threadcast.providers.base import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from threadcast_protocol.wire.deltas import DeltaOp, MergeExtra
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["TOLD_EVERY_SECONDS", "Thinking", "ops_of"]

TOLD_EVERY_SECONDS = 1.0
"""The interval between two published figures. People read whole seconds, and one more delta per second adds little to
the deltas of the reasoning."""

THOUGHT_MAX_MS = 10**12
"""The maximum time that is read from a message, 30 years, because an imported message may contain any value (PROTOCOL
§8). Longer times are ignored, and so are values that are not numbers."""


class Thinking:
    """Measures one model call. `extra` is the `extra` field of the message that the call continues, or {} for a new
    message. `clock` returns monotonic seconds."""

    def __init__(self, extra: JsonObject, clock: Callable[[], float] = time.monotonic) -> None:
        before = extra.get("reasoning_ms")
        self._seconds = 0.0
        if isinstance(before, int | float) and not isinstance(before, bool) and 0 <= before <= THOUGHT_MAX_MS:
            self._seconds = before / 1000
        self._clock = clock
        self._since: float | None = None
        self._told_at: float | None = None

    def feed(self, delta: Delta) -> MergeExtra | None:
        """Return the new figure if `delta` ends the thinking, or if a second has passed since the last figure. The
        caller must publish the figure before `delta`."""
        match delta:
            case ReasoningDelta(text=text) if text:
                now = self._clock()
                if self._since is None or self._told_at is None:
                    self._since = self._told_at = now
                elif now - self._told_at >= TOLD_EVERY_SECONDS:
                    self._told_at = now
                    return self._figure(self._seconds + now - self._since)
            case TextDelta(text=text) if text:
                return self.end()
            case ToolCallDelta():
                return self.end()
            case _:
                pass
        return None

    def end(self) -> MergeExtra | None:
        """Return the final figure if the model was thinking until now."""
        if self._since is None:
            return None
        self._seconds += self._clock() - self._since
        self._since = None
        return self._figure(self._seconds)

    def _figure(self, seconds: float) -> MergeExtra:
        return MergeExtra({"reasoning_ms": max(1, round(seconds * 1000))})


def ops_of(
    deltas: Sequence[Delta], assembler: Assembler, thinking: Thinking, *, is_end: bool = False
) -> Iterator[DeltaOp]:
    """Yield the operations that show `deltas`. If the model's reasoning is shown, also yield how long the model has
    thought. `is_end` is true if the stream has ended. Raises ModelFailed if the answer becomes too long."""
    for delta in deltas:
        if (figure := thinking.feed(delta)) is not None and assembler.shows_reasoning:
            yield figure
        if (op := assembler.feed(delta)) is not None:
            yield op
    if is_end and (figure := thinking.end()) is not None and assembler.shows_reasoning:
        yield figure
