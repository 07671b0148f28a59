"""The reasons why an ownership ends, and the delays after which the chat is offered to another worker."""

from enum import Enum

__all__ = ["LONG_MISSING_DELAY_MS", "NEWER_VERSION_DELAY_MS", "End"]

NEWER_VERSION_DELAY_MS = 1_000
"""Milliseconds until a chat whose log a newer version has written is offered to another worker (DISPATCH trap 14)."""


LONG_MISSING_DELAY_MS = 10_000
"""Milliseconds until a chat is offered to another worker again, if no worker with the chat's agent has taken it for a
minute. Each offer adds an entry to the chat's log."""


class End(Enum):
    """The reason why an ownership ended."""

    RELEASED = "released"
    HANDED_OVER = "handed_over"
    LOST = "lost"
    NEWER_VERSION = "newer_version"
    UNFOLDABLE = "unfoldable"
    LACKS_AGENT = "lacks_agent"
