"""A command for Redis: its bytes, the future of its reply, and the time for which its caller waits."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

from threadcast_protocol.wire.errors import Unavailable

__all__ = ["COMMAND_TIMEOUT_SECONDS", "LARGE_BYTES", "Command", "OnReply", "Reply", "is_wanted", "seconds_for"]

Reply = Any  # Any: a reply is a nest of bytes, ints, None and lists whose shape depends on the command

OnReply: TypeAlias = Callable[[Reply], None]
"""A callback that gets the reply in the task that reads it, before any caller is woken. It is also called if the caller
was cancelled. It neither waits nor raises."""

COMMAND_TIMEOUT_SECONDS = 2.0
"""Seconds that a command may wait for a free lane, and seconds that its exchange with the server may then take. A
command of ordinary size therefore has its answer or its error within 4 s. It takes longer only while bytes are
transferred at least every 2 s. No lease depends on this number: a worker whose heartbeat hangs stops its work by its
own clock (`actor/host.py`)."""

SECONDS_PER_MB = 0.5
"""Seconds that are added for each MB of a command. A store on a busy machine needs seconds to read a blob of 16 MB from
its socket."""

LARGE_BYTES = 262_144
"""A command with more bytes is sent alone. A heartbeat that waits behind 16 MB on a slow line would be too late for its
lease."""


class Command:
    """One packed command. `answer` is the future of its reply, `expires_at` the event-loop time at which its caller
    gives up, and `on_reply` a callback that gets the reply first."""

    __slots__ = ("answer", "expires_at", "on_reply", "packed")

    def __init__(
        self, packed: bytes, answer: "asyncio.Future[Reply]", expires_at: float, on_reply: OnReply | None
    ) -> None:
        self.packed = packed
        self.answer = answer
        self.expires_at = expires_at
        self.on_reply = on_reply

    @property
    def is_large(self) -> bool:
        return len(self.packed) > LARGE_BYTES

    def fail(self, wrong: Exception) -> None:
        """Raise `wrong` in the caller, unless the command already has a result."""
        if not self.answer.done():
            self.answer.set_exception(wrong)


def seconds_for(size_bytes: int) -> float:
    """Return the seconds that commands of this total size may wait for a lane. Their exchange may then take the same
    time again."""
    return COMMAND_TIMEOUT_SECONDS + SECONDS_PER_MB * size_bytes / 1_000_000


def is_wanted(command: Command, now: float) -> bool:
    """Return whether the command still needs a reply. Returns False for a command whose caller was cancelled, and for a
    command past its deadline, which fails here with Unavailable."""
    if command.expires_at < now:
        command.fail(Unavailable("the store does not answer"))
    return not command.answer.done()
