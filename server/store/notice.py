"""What a chat's log channel says, as the store's port hands it on.

It knows neither Redis nor what an event means. `news.py` makes notices of bytes, relays and whoever waits for an end
read them. The rule: a notice may be lost, and then one says so; it is never invented.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from protocol.entries import RawEntry

__all__ = ["AtOnce", "Notice"]


class Notice(msgspec.Struct, frozen=True):
    """What a chat's log channel said. `kind`:

    entry: `entry` holds it without its facts; large: too big for the channel, read it by its id; deleted: the chat is
    gone; reconnected: the channel was rebuilt, anything may have been missed, compare the head.
    """

    kind: Literal["entry", "large", "deleted", "reconnected"]
    chat_id: str
    entry: RawEntry | None = None
    head: str = ""
    before: str = ""
    version: int = 0


AtOnce: TypeAlias = Callable[[Notice], bool]
"""Takes a notice where it comes in, whatever task brings it, or (False) leaves it to be read. Neither waits nor raises.
"""
