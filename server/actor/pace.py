"""The writers of one process in step: when the next deltas of an answer are due, and who goes together.

Commands that are issued in one turn of the event loop leave in one pipeline (`store/connection.py`), and the exchange
with the store is a third of what an append costs. So writers that are due at about the same moment are woken in the
same turn: with 50 answers under way, an append takes the worker three quarters of the CPU (290 to 220 us, medians of
interleaved runs of `bench.tokens 50`). It knows no store and no chat. The rule: whoever waits is woken no sooner than
it asked for, and within a tick.
"""

import asyncio
import math
from weakref import WeakSet

from server.pace import pace_seconds

__all__ = ["TICK_SECONDS", "Pace"]

TICK_SECONDS = 0.010
"""A third of the shortest pace, which becomes 30 to 40 ms by it; half of it would halve the company."""


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
        """Give `waiter` its result at the first tick after `due_at`, together with all others of that tick."""
        tick = math.ceil(due_at / TICK_SECONDS)
        waiters = self._waiting.get(tick)
        if waiters is None:
            waiters = self._waiting[tick] = []
            asyncio.get_running_loop().call_at(tick * TICK_SECONDS, self._wake, tick)
        waiters.append(waiter)

    def _wake(self, tick: int) -> None:
        for waiter in self._waiting.pop(tick):
            if not waiter.done():  # it went earlier, with enough to say
                waiter.set_result(None)
