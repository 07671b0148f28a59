"""How long a model thought before it spoke, as `reasoning_ms` of its message's `extra` (PROTOCOL §8).

Counted from the first piece of reasoning that is shown to the first word or call after it; a model that thinks again
adds to it. While it thinks the figure is told once a second, so that every reader sees it grow, and an answer that is
stopped, or whose worker dies, keeps the last one.
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
    """One model call. `extra` is the message's own, when it is written on; `clock` gives seconds that never go back."""

    def __init__(self, extra: JsonObject, clock: Callable[[], float] = time.monotonic) -> None:
        before = extra.get("reasoning_ms")
        self._seconds = 0.0
        if isinstance(before, int | float) and not isinstance(before, bool) and 0 <= before <= THOUGHT_MAX_MS:
            self._seconds = before / 1000
        self._clock = clock
        self._since: float | None = None
        self._told_at: float | None = None

    def feed(self, delta: Delta) -> MergeExtra | None:
        """The figure, when `delta` ends the thinking or a second has passed; to be told before `delta` is."""
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
        """The figure, when the model was thinking until now."""
        if self._since is None:
            return None
        self._seconds += self._clock() - self._since
        self._since = None
        return self._figure(self._seconds)

    def _figure(self, seconds: float) -> MergeExtra:
        return MergeExtra({"reasoning_ms": max(1, round(seconds * 1000))})
