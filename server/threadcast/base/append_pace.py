"""Computes the pause between two appends of one chat's deltas, and between two reads of one model's answer, from the
load.

The writers of a worker and the transport of model answers use the same ticks: text that a tick reads is appended in the
same tick, and the appends of all chats are sent in one pipeline (`store/redis/connection.py`). The cost of an append
hardly depends on its size, so a process with many running answers collects deltas for longer. A transport of model
answers counts the answers of its own provider only. The first piece of an answer never waits (decision 0024).
"""

import asyncio
from collections.abc import Callable

__all__ = ["PACE_SECONDS", "TICK_SECONDS", "Ticks", "pace_seconds"]

PACE_SECONDS = 0.030
"""The pause while few answers are running: changes within this time look simultaneous."""

PACE_MAX_SECONDS = 0.150
"""The maximum pause: seven updates a second still look like writing. A token then reaches its reader after half the
pause plus the time of transport. The delay is the same as with two separate pauses of 60 ms for reads and appends,
measured at 200 answers."""

ANSWERS_PER_SECOND = 1_333
"""Appends of deltas per second and process: the pause is 30 ms for 40 answers, 75 for 100, 150 for 200 and more."""

TICK_SECONDS = 0.010
"""Seconds between ticks: a third of the shortest pause. Ticks of half the length would halve the number of calls that
share a tick. Calls that are due within half a tick run together."""


def pace_seconds(answers_count: int) -> float:
    """Return the pause for a process that streams this number of answers."""
    return min(PACE_MAX_SECONDS, max(PACE_SECONDS, answers_count / ANSWERS_PER_SECOND))


class Ticks:
    """Runs callbacks that are due at about the same time in the same turn of the event loop. Times are those of the
    event loop, in seconds. All objects of this class in a process have the same ticks."""

    def __init__(self) -> None:
        self._due: dict[int, list[Callable[[], None]]] = {}

    def call_at(self, due_at: float, wake: Callable[[], None]) -> None:
        """Call `wake` at the tick nearest to `due_at`. The call cannot be cancelled, so `wake` must tolerate calls that
        are no longer needed."""
        tick = round(due_at / TICK_SECONDS)
        those = self._due.get(tick)
        if those is None:
            those = self._due[tick] = []
            asyncio.get_running_loop().call_at(tick * TICK_SECONDS, self._wake, tick)
        those.append(wake)

    def _wake(self, tick: int) -> None:
        for wake in self._due.pop(tick):
            wake()
