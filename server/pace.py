"""How far apart two appends of one chat's deltas are, and two reads of one model's answer: the same, by the load.

Shared by the writers of a worker and by the transport that reads models. Both go by the same ticks, so that what a
tick reads the same tick appends: a read and an append go together, neither waits for the other, and the appends of all
chats that were read leave in one pipeline (`store/connection.py`). An append costs about the same whatever it holds, so
a process with many answers under way gathers longer. A transport counts the answers of its own provider. The rule: only
the second and later pieces of an answer ever wait (decision 0024).
"""

import asyncio
from collections.abc import Callable

__all__ = ["PACE_SECONDS", "TICK_SECONDS", "Ticks", "pace_seconds"]

PACE_SECONDS = 0.030
"""While few answers are under way: what comes within it is one event to the eye."""

PACE_MAX_SECONDS = 0.150
"""With any number: seven times a second still reads as writing. A token is then half of it old, and its way, when its
reader has it: what it was at 200 answers while reads and appends waited for each other at 60 ms each."""

ANSWERS_PER_SECOND = 1_333
"""Appends of deltas that one process makes: 30 ms apart for 40 answers, 75 for 100, 150 for 200 and more."""

TICK_SECONDS = 0.010
"""A third of the shortest pace; half of it would halve the company. Who is due within half of one goes at once."""


def pace_seconds(answers_count: int) -> float:
    """For a process that streams so many answers at once."""
    return min(PACE_MAX_SECONDS, max(PACE_SECONDS, answers_count / ANSWERS_PER_SECOND))


class Ticks:
    """Calls those who are due at about the same moment in the same turn of the event loop; times are the loop's, in
    seconds. All of a process tick together, whoever made them."""

    def __init__(self) -> None:
        self._due: dict[int, list[Callable[[], None]]] = {}

    def call_at(self, due_at: float, wake: Callable[[], None]) -> None:
        """At the tick nearest to `due_at`. It is not taken back: `wake` must bear being called too late."""
        tick = round(due_at / TICK_SECONDS)
        those = self._due.get(tick)
        if those is None:
            those = self._due[tick] = []
            asyncio.get_running_loop().call_at(tick * TICK_SECONDS, self._wake, tick)
        those.append(wake)

    def _wake(self, tick: int) -> None:
        for wake in self._due.pop(tick):
            wake()
