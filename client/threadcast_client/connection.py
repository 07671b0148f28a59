"""The connection status of a chat, for display.

The status is `live` when the missed events have arrived and the unconfirmed commands were posted again. Before that, an
open connection is `catching_up`.
"""

from typing import Literal

import msgspec

__all__ = ["Connection"]


class Connection(msgspec.Struct, frozen=True):
    """The status of a chat's connection at one moment."""

    state: Literal["catching_up", "live", "offline"]
    held_count: int = 0
    """The number of sent commands that the stream has not shown yet, without withdrawn commands."""
    reason: str = ""
    """While offline: the reason why there is no connection."""
    retry_in_seconds: float = 0.0
    """While offline: the time from this status to the next attempt."""
    silent_seconds: float = 0.0
    """The time since the server last sent a byte; 0 unless a heartbeat is overdue (PROTOCOL §4)."""
    is_signed_out: bool = False
    """Whether the server has refused the token; call `Client.retry` after a sign-in."""

    def __str__(self) -> str:
        waiting = f", {self.held_count} to send" if self.held_count else ""
        if self.is_signed_out:
            return f"signed out{waiting}: {self.reason}"
        if self.silent_seconds:
            return f"no word from the server for {self.silent_seconds:.0f} s{waiting}"
        match self.state:
            case "live":
                return f"live{waiting}"
            case "catching_up":
                return f"catching up{waiting}"
            case "offline":
                return f"offline{waiting}: {self.reason or 'not connected yet'}"
