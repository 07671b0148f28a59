"""The writers of one process in step: when the next deltas of an answer are due, and who goes together.

Commands that are issued in one turn of the event loop leave in one pipeline (`store/connection.py`), and the exchange
with the store is a third of what an append costs. So writers that are due at about the same moment are woken in the
same turn: with 50 answers, an append takes the worker 0.6 of the CPU (`bench.tokens`). It knows no store and no chat.
The rule: whoever waits is woken within half a tick of the moment that it asked for.
"""

import asyncio
from weakref import WeakSet

from server.pace import pace_seconds

__all__ = ["TICK_SECONDS", "Pace"]

TICK_SECONDS = 0.010
"""A third of the shortest pace, so 25 to 35 ms; half of it would halve the company."""


class Pace:
    """One for all writers of a process; times are the event loop's, in seconds."""

    def __init__(self) -> None:
        self._streaming: WeakSet[object] = WeakSet()
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}

    def begin(self, writer: object) -> None:
        """Its chat has an open answer."""
        self._streaming.add(writer)

    def end(self, writer: object) -> None:
        self._streaming.discard(writer)

    def due_at(self, last_append_at: float) -> float:
        """When the deltas go that come after an append that was answered at that time."""
        return last_append_at + pace_seconds(len(self._streaming))

    def wake_at(self, due_at: float, waiter: "asyncio.Future[None]") -> None:
        """Give `waiter` its result at the tick nearest to `due_at`, together with all others of that tick."""
        tick = round(due_at / TICK_SECONDS)
        waiters = self._waiting.get(tick)
        if waiters is None:
            waiters = self._waiting[tick] = []
            asyncio.get_running_loop().call_at(tick * TICK_SECONDS, self._wake, tick)
        waiters.append(waiter)

    def _wake(self, tick: int) -> None:
        for waiter in self._waiting.pop(tick):
            if not waiter.done():  # it went earlier, with enough to say
                waiter.set_result(None)
