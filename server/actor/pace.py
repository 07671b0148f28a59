"""The writers of one process in step: when the next deltas of an answer are due, and who goes together.

Commands that are issued in one turn of the event loop leave in one pipeline (`store/connection.py`), and the exchange
with the store is a third of what an append costs. So writers that are due at about the same moment are woken in the
same turn: with 50 answers under way, an append takes the worker three quarters of the CPU (290 to 220 us, medians of
interleaved runs of `bench.tokens 50`). It knows no store and no chat. The rule: nobody waits for more than a pace.
"""

import asyncio
from weakref import WeakSet

from server.pace import TICK_SECONDS, Ticks, pace_seconds

__all__ = ["Pace"]


class Pace:
    """One for all writers of a process; times are the event loop's, in seconds."""

    def __init__(self) -> None:
        self._streaming: WeakSet[object] = WeakSet()
        self._ticks = Ticks()

    def begin(self, writer: object) -> None:
        """Its chat has an open answer."""
        self._streaming.add(writer)

    def end(self, writer: object) -> None:
        self._streaming.discard(writer)

    def due_at(self, last_append_at: float) -> float:
        """When the deltas go that come after an append that left at that time."""
        return last_append_at + pace_seconds(len(self._streaming))

    @staticmethod
    def is_near(due_at: float) -> bool:
        """Is its tick this one, or past? So what was read sooner after its tick than the last time goes at once."""
        return due_at - asyncio.get_running_loop().time() < TICK_SECONDS / 2

    def wake_at(self, due_at: float, waiter: "asyncio.Future[None]") -> None:
        """Give `waiter` its result at the tick nearest to `due_at`, together with all others of that tick."""
        self._ticks.call_at(due_at, lambda: _wake(waiter))


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():  # it went earlier, with enough to say
        waiter.set_result(None)
