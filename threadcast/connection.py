"""How a chat stands to its server, in words that a screen can show honestly.

`live` is said only when what was missed has come and what was sent before has been posted again; an open socket alone
is `catching_up`.
"""

from typing import Literal

import msgspec

__all__ = ["Connection"]


class Connection(msgspec.Struct, frozen=True):
    """`held_count`: commands sent here that the stream has not shown yet. While offline, `reason` says why, and
    `retry_in_seconds` when the next try is made, counted from when this was told."""

    state: Literal["catching_up", "live", "offline"]
    held_count: int = 0
    reason: str = ""
    retry_in_seconds: float = 0.0

    def __str__(self) -> str:
        waiting = f", {self.held_count} to send" if self.held_count else ""
        match self.state:
            case "live":
                return f"live{waiting}"
            case "catching_up":
                return f"catching up{waiting}"
            case "offline":
                return f"offline{waiting}: {self.reason or 'not connected yet'}"
