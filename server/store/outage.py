"""What the log says of a store that cannot be reached: that it is gone, still gone, and back after so long.

`channels.py` tells it how its one connection fares, which every process holds and rebuilds ten times a second. It does
not know why. The rule: whatever happens how often, no event is a line more than once a minute; the next one says how
often it was.
"""

import math

import anyio
import structlog
from redis.asyncio.connection import AbstractConnection

from protocol.errors import ThreadcastError

__all__ = ["SAY_AGAIN_SECONDS", "Outage", "address_of"]

SAY_AGAIN_SECONDS = 60.0
"""A store that is down for an hour is sixty lines of each process, and the newest is never old."""

_log = structlog.get_logger(__name__)


class Outage:
    """Of one server. Not yet one when made."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._said_at = -math.inf
        self._broken_said_at = -math.inf
        self._broken_count = 0

    def broken(self, wrong: ThreadcastError, channel_count: int) -> None:
        """An open connection is lost. That happens to a store that is well, so nobody need look."""
        self._broken_count += 1
        now = anyio.current_time()
        if now - self._broken_said_at >= SAY_AGAIN_SECONDS:
            _log.info("channels.lost", error=str(wrong), channel_count=channel_count, times=self._broken_count)
            self._broken_said_at, self._broken_count = now, 0

    def unreachable(self, wrong: ThreadcastError, address: str) -> None:
        """No connection could be opened."""
        now = anyio.current_time()
        if self._since is None:
            self._since, self._said_at = now, -math.inf
        if now - self._said_at >= SAY_AGAIN_SECONDS:
            _log.error("store.lost", address=address, error=str(wrong), gone_seconds=round(now - self._since, 1))
            self._said_at = now

    def reachable(self, address: str) -> None:
        """A connection is open."""
        if self._since is not None:
            _log.info("store.back", address=address, gone_seconds=round(anyio.current_time() - self._since, 1))
            self._since = None


def address_of(connection: AbstractConnection) -> str:
    """Where it leads, for people: the address alone, no user and no password."""
    arguments = dict(connection.repr_pieces())  # type: ignore[no-untyped-call] # redis-py's
    if "path" in arguments:
        return f"unix://{arguments['path']}"
    host = str(arguments.get("host", ""))
    return f"[{host}]:{arguments.get('port')}" if ":" in host else f"{host}:{arguments.get('port')}"
