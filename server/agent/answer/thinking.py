"""Measures how long a model thinks before it answers: `reasoning_ms` in its message's `extra` (PROTOCOL §8).

The time runs from the first piece of shown reasoning to the first word or call after it; later reasoning adds to the
figure. While the model thinks, the figure is published once a second, so that readers see it grow. An answer that is
stopped, or whose worker dies, keeps the last figure.
"""

import time
from collections.abc import Callable

from protocol.deltas import MergeExtra
from protocol.messages import JsonObject
from server.providers.base import Delta, ReasoningDelta, TextDelta, ToolCallDelta

__all__ = ["TOLD_EVERY_SECONDS", "Thinking"]

TOLD_EVERY_SECONDS = 1.0
"""People read whole seconds; a delta a second costs nothing beside those of the reasoning itself."""

THOUGHT_MAX_MS = 10**12
"""30 years. An imported message may say anything (PROTOCOL §8); a longer time, like no number, counts as none."""


class Thinking:
    """Measures one model call. `extra` is the message's own if the call continues a message; `clock` returns monotonic
    seconds."""

    def __init__(self, extra: JsonObject, clock: Callable[[], float] = time.monotonic) -> None:
        before = extra.get("reasoning_ms")
        self._seconds = 0.0
        if isinstance(before, int | float) and not isinstance(before, bool) and 0 <= before <= THOUGHT_MAX_MS:
            self._seconds = before / 1000
        self._clock = clock
        self._since: float | None = None
        self._told_at: float | None = None

    def feed(self, delta: Delta) -> MergeExtra | None:
        """Return the new figure if `delta` ends the thinking or a second has passed; publish it before `delta`."""
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
