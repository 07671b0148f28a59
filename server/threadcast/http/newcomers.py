"""Begins the first GET requests of new connections one after the other, one in each turn of the event loop.

A caller who opens and drops hundreds of connections would otherwise begin hundreds of requests in one turn, and every
request of another caller, which needs many turns, would wait for all of them. If the client disconnects while its
connection waits, its request costs nothing. Probes of the server's health do not wait, and neither do other methods,
because their bodies would wait in the server's memory instead of the system's (decision 0039).
"""

import asyncio
from typing import Protocol

__all__ = ["HELD_MAX_BYTES", "Newcomers"]

HELD_MAX_BYTES = 4_194_304
"""Maximum bytes of the waiting requests of all connections. A request that would exceed this maximum does not wait."""


class _Newcomer(Protocol):
    """A connection that has not received a request yet."""

    loop: asyncio.AbstractEventLoop

    def begin(self, data: bytes) -> None:
        """Handle the bytes that have arrived."""


class Newcomers:
    """The connections of one server whose first request waits for its turn."""

    def __init__(self) -> None:
        self._waiting: dict[_Newcomer, bytes] = {}  # in the order of their arrival
        self._held_bytes = 0
        self._is_turn_taken = False

    def holds(self, connection: _Newcomer, data: bytes) -> bool:
        """Hold bytes of a new connection until its turn. Returns False if the connection handles them now."""
        if not self._is_turn_taken:
            self._is_turn_taken = True
            connection.loop.call_soon(self._begin_next, connection.loop)
            return False
        if self._held_bytes + len(data) <= HELD_MAX_BYTES:
            self._waiting[connection] = self._waiting.get(connection, b"") + data
            self._held_bytes += len(data)
            return True
        if held := self.forget(connection):
            connection.begin(held + data)
        return bool(held)

    def waits(self, connection: _Newcomer) -> bool:
        """Return whether bytes of this connection are held."""
        return connection in self._waiting

    def forget(self, connection: _Newcomer) -> bytes:
        """Forget a connection that no longer waits. Returns its bytes."""
        held = self._waiting.pop(connection, b"")
        self._held_bytes -= len(held)
        return held

    def _begin_next(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._waiting:
            self._is_turn_taken = False
            return
        loop.call_soon(self._begin_next, loop)
        connection = next(iter(self._waiting))
        connection.begin(self.forget(connection))
