"""Computes the pause before the next attempt. The module is pure; random numbers come from a function argument.

The pause has full jitter: it is drawn between 0 and a maximum that doubles with each failure, so that clients that lost
their server together do not reconnect together. If the server requests a pause (`retry:`, PROTOCOL §4; `Retry-After`,
RFC 9110 §10.2.3), the drawn pause is added to it.
"""

import random
from collections.abc import Callable

import msgspec

__all__ = ["Backoff", "RetryPolicy"]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts and pauses of a client, in seconds."""

    connect_seconds: float = 5.0
    """Time limit for opening a connection."""

    quiet_seconds: float = 20.0
    """The silence of a stream after which a heartbeat is overdue: 15 s (PROTOCOL §4) plus a third of 15 s for delays in
    the network. An overdue heartbeat is reported and has no other effect."""

    silence_seconds: float = 45.0
    """The silence after which a stream is given up as dead: three heartbeats (PROTOCOL §4)."""

    answer_seconds: float = 10.0
    """Time limit of one request. The answer to an abort waits up to 2 s for its effect (PROTOCOL §3)."""

    open_seconds: float = 10.0
    """Time limit for the snapshot of an opened chat; it exceeds the duration of a takeover (5 s)."""

    pause_first_seconds: float = 0.25
    """The maximum of the first pause between attempts."""

    pause_max_seconds: float = 5.0
    """The maximum of every pause between attempts. The server resumes work within 5 s of a worker's death, so users
    would notice a longer pause."""

    sign_in_seconds: float = 30.0
    """The pause after the server has refused the token; `Client.retry` ends the pause after a sign-in."""

    claim_renewed_seconds: float = 20.0
    """The interval at which the claim of a client tool is renewed: a third of the 60 s after which a claim ends
    (PROTOCOL §12)."""


class Backoff:
    """The pauses between the attempts of one operation."""

    def __init__(self, retry_policy: RetryPolicy, draw: Callable[[], float] = random.random) -> None:
        """`draw` returns random numbers from 0 to below 1."""
        self._retry_policy = retry_policy
        self._draw = draw
        self._ceiling = retry_policy.pause_first_seconds

    def pause(self, at_least_seconds: float = 0.0) -> float:
        """Return the seconds to wait before the next attempt, at least the pause that the server requested."""
        drawn = self._draw() * self._ceiling
        self._ceiling = min(self._ceiling * 2, self._retry_policy.pause_max_seconds)
        return max(0.0, at_least_seconds) + drawn

    def reset(self) -> None:
        """Begin again with the first pause, after a success."""
        self._ceiling = self._retry_policy.pause_first_seconds
