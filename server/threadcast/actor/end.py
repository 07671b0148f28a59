"""The reasons for which an ownership ends, and the delays after which another worker is offered the chat."""

from enum import Enum

__all__ = ["LONG_MISSING_DELAY_MS", "NEWER_VERSION_DELAY_MS", "End"]

NEWER_VERSION_DELAY_MS = 1_000
"""Milliseconds until a chat whose log a newer version has written is offered to another worker (DISPATCH trap 14)."""


LONG_MISSING_DELAY_MS = 10_000
"""Milliseconds until a chat is offered to another worker, if for a minute no worker with its agent was found. Each
offer adds an entry to the chat's log."""


class End(Enum):
    """The reason why an ownership ended."""

    RELEASED = "released"
    HANDED_OVER = "handed_over"
    LOST = "lost"
    NEWER_VERSION = "newer_version"
    UNFOLDABLE = "unfoldable"
    LACKS_AGENT = "lacks_agent"
