"""A command on its way to Redis: its bytes, the future of its reply, and how long its caller waits."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

from threadcast_protocol.wire.errors import Unavailable

__all__ = ["COMMAND_TIMEOUT_SECONDS", "LARGE_BYTES", "Command", "OnReply", "Reply", "is_wanted", "seconds_for"]

Reply = Any  # Any: a reply is a nest of bytes, ints, None and lists whose shape depends on the command

OnReply: TypeAlias = Callable[[Reply], None]
"""Gets the reply in the task that reads it, before any caller is woken, and also if the caller was cancelled. It
neither waits nor raises."""

COMMAND_TIMEOUT_SECONDS = 2.0
"""Seconds that a command may wait for a free lane, and seconds that its exchange with the server may then take. A
command of ordinary size therefore has its answer or its error after 4 s, or later only while its bytes keep moving, at
least every 2 s. No lease depends on this number: a worker whose heartbeat hangs stops its work by its own clock
(`actor/host.py`)."""

SECONDS_PER_MB = 0.5
"""Seconds that a command gets in addition for each MB: a store on a busy machine needs seconds to read a blob of 16 MB
from its socket."""

LARGE_BYTES = 262_144
"""A command of more bytes is sent alone, since a heartbeat queued behind 16 MB on a slow line would lose its lease."""


class Command:
    """One packed command, the future that waits for its reply, the end of that wait (event-loop seconds), and a
    callback that gets the reply first."""

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
        """Give the caller this exception of ours."""
        if not self.answer.done():
            self.answer.set_exception(wrong)


def seconds_for(size_bytes: int) -> float:
    """Return the seconds that commands of this total size may wait for a lane, and again the seconds for their
    exchange."""
    return COMMAND_TIMEOUT_SECONDS + SECONDS_PER_MB * size_bytes / 1_000_000


def is_wanted(command: Command, now: float) -> bool:
    """Return whether the command still needs an answer. A command past its deadline fails here, and needs no answer;
    neither does a command whose caller was cancelled."""
    if command.expires_at < now:
        command.fail(Unavailable("the store does not answer"))
    return not command.answer.done()
