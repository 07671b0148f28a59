"""How long to wait before the next try. Pure: chance comes in as an argument.

Full jitter: a pause is drawn from nothing up to a ceiling that doubles with each failure, so that clients which lost
their server together do not come back together. What the server asks for is waited out first (PROTOCOL §4, `retry:`;
RFC 9110 §10.2.3, `Retry-After`), and the jitter comes on top.
"""

import random
from collections.abc import Callable

import msgspec

__all__ = ["Backoff", "Patience"]


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait for what, in seconds."""

    connect_seconds: float = 5.0
    silence_seconds: float = 45.0
    """Three heartbeats; a line that says nothing for longer is dead (PROTOCOL §4)."""

    answer_seconds: float = 10.0
    """For one request; an abort's answer waits up to 2 s for its effect (PROTOCOL §3)."""

    open_seconds: float = 10.0
    """Until a chat that is entered shows its snapshot; longer than a takeover takes (5 s)."""

    pause_first_seconds: float = 0.25
    pause_max_seconds: float = 5.0
    """The ceilings of the first and of the longest pause between tries. Work resumes within 5 s of a worker's death, so
    a longer pause would be noticed."""

    claim_renewed_seconds: float = 20.0
    """A third of the 60 s after which the claim of a client tool lapses (PROTOCOL §12)."""


class Backoff:
    """The pauses of one thing that is tried again and again."""

    def __init__(self, patience: Patience, draw: Callable[[], float] = random.random) -> None:
        """`draw` gives numbers from 0 to below 1."""
        self._patience = patience
        self._draw = draw
        self._ceiling = patience.pause_first_seconds

    def pause(self, at_least_seconds: float = 0.0) -> float:
        """Seconds to wait now, no less than what the server asked for."""
        drawn = self._draw() * self._ceiling
        self._ceiling = min(self._ceiling * 2, self._patience.pause_max_seconds)
        return max(0.0, at_least_seconds) + drawn

    def reset(self) -> None:
        """It worked."""
        self._ceiling = self._patience.pause_first_seconds
