"""Logs the beginning and the end of a store's outage, and once a minute its duration.

`channels.py` reports the state of the process's single pub/sub connection. While the connection is lost, the process
tries to rebuild it ten times a second. Each event is logged at most once a minute. A line about lost connections
includes their number since the line before.
"""

import math

import anyio
import structlog
from redis.asyncio.connection import AbstractConnection

from threadcast_protocol.wire.errors import ThreadcastError

__all__ = ["SAY_AGAIN_SECONDS", "Outage", "address_of"]

SAY_AGAIN_SECONDS = 60.0
"""Seconds between two lines about the same event. An hour of outage gives sixty lines per process, and the newest line
is at most a minute old."""

_log = structlog.get_logger(__name__)


class Outage:
    """The outage of one server. A new object assumes that the server can be reached."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._said_at = -math.inf
        self._broken_said_at = -math.inf
        self._broken_count = 0

    def broken(self, wrong: ThreadcastError, channel_count: int) -> None:
        """Log that an open connection was lost. A healthy store loses connections, too, so an operator may ignore this
        line."""
        self._broken_count += 1
        now = anyio.current_time()
        if now - self._broken_said_at >= SAY_AGAIN_SECONDS:
            _log.info("channels.lost", error=str(wrong), channel_count=channel_count, times=self._broken_count)
            self._broken_said_at, self._broken_count = now, 0

    def unreachable(self, wrong: ThreadcastError, address: str) -> None:
        """Log that no connection could be opened."""
        now = anyio.current_time()
        if self._since is None:
            self._since, self._said_at = now, -math.inf
        if now - self._said_at >= SAY_AGAIN_SECONDS:
            _log.error("store.lost", address=address, error=str(wrong), gone_seconds=round(now - self._since, 1))
            self._said_at = now

    def reachable(self, address: str) -> None:
        """Log the end of the outage, because a connection was opened."""
        if self._since is not None:
            _log.info("store.back", address=address, gone_seconds=round(anyio.current_time() - self._since, 1))
            self._since = None


def address_of(connection: AbstractConnection) -> str:
    """Return the connection's address for logs, without user and password."""
    arguments = dict(connection.repr_pieces())  # type: ignore[no-untyped-call] # redis-py's
    if "path" in arguments:
        return f"unix://{arguments['path']}"
    host = str(arguments.get("host", ""))
    return f"[{host}]:{arguments.get('port')}" if ":" in host else f"{host}:{arguments.get('port')}"
