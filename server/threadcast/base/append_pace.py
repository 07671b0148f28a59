"""Computes the pause between two appends of one chat's deltas, and between two reads of one model's answer, from the
load of the process.

The writers of a worker and the transport of model answers use the same ticks: text that a tick reads is appended in the
same tick, and the appends of all chats are sent in one pipeline (`store/redis/connection.py`). The cost of an append
hardly depends on its size, so a busy process collects deltas for longer; an idle process has no reason to make readers
wait. The first piece of an answer never waits (decisions 0024 and 0042).
"""

import asyncio
import time
from collections.abc import Callable

__all__ = ["PACE", "PACE_MAX_SECONDS", "PACE_SECONDS", "TICK_SECONDS", "AppendPace", "Ticks"]

PACE_SECONDS = 0.030
"""The pause while the process is not busy: changes within this time look simultaneous."""

PACE_MAX_SECONDS = 0.150
"""The maximum pause of a busy process: seven updates a second still look like writing. A token then reaches its reader
after half the pause plus the time of transport."""

PACE_FULL_MAX_SECONDS = 0.250
"""The maximum pause of a process that is still overloaded at a pause of 150 ms: readers get four updates a second, and
tokens are some 150 ms old. Without this pause, the tokens of 1,500 chats waited for the loop and were 675 ms old."""

ANSWERS_PER_SECOND = 1_333
"""The number of appends of deltas per second and process at which the pause stops growing: with 40 answers or fewer the
pause stays at 30 ms, and with 100 answers it is at most 75 ms, at any load of the process."""

TICK_SECONDS = 0.010
"""Seconds between ticks: a third of the shortest pause. Ticks of half the length would halve the number of calls that
share a tick. Calls that are due within half a tick run together."""

BUSY_SHARE = 0.6
"""The share of a core that the event loop may take before the pause grows. Above this share, bursts delay readers more
than a longer pause does."""

FULL_SHARE = 0.85
"""The share of a core above which the pause grows beyond `PACE_MAX_SECONDS`."""

STORE_DELAY_SECONDS = 0.025
"""The time of an exchange with the store above which the pause grows, too, because the shared store is then busy."""

FULL_STORE_DELAY_SECONDS = 0.100
"""The time of an exchange with the store above which the pause grows beyond `PACE_MAX_SECONDS`."""

LOOK_SECONDS = 0.25
"""Seconds between two measurements of the load."""

LOAD_MAX = 2.0
"""The maximum load that one measurement contributes, in shares of the load's target, so that a single slow exchange
changes the pause only a little."""

GAIN = 0.4
"""The share of a deviation that one measurement corrects. The load falls at most in proportion to the pause, so any
gain below 2 converges; this gain converges within some two seconds and without overshoot."""


class AppendPace:
    """The pause of a process. The pause grows while the event loop or the store is busier than its target, and shrinks
    while both are below their targets. Pauses above `PACE_MAX_SECONDS` have higher targets; between the two targets the
    pause stays at `PACE_MAX_SECONDS`.

    `now` returns the seconds of a clock, and `cpu` the seconds of CPU time of the thread that runs the event loop.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.thread_time) -> None:
        self._now = now
        self._cpu = cpu
        self._seconds = PACE_SECONDS
        self._looked_at, self._cpu_seconds = now(), cpu()
        self._delays_seconds, self._delays_count = 0.0, 0
        self.store_delay_seconds = 0.0
        """The mean time of an exchange with the store at the last measurement; 0 if there was no exchange."""

    def seconds(self, answers_count: int) -> float:
        """Return the present pause for a process that streams this number of answers."""
        now = self._now()
        if now - self._looked_at >= LOOK_SECONDS:
            self._look(now)
        return min(self._seconds, max(PACE_SECONDS, answers_count / ANSWERS_PER_SECOND))

    def note_store_delay(self, seconds: float) -> None:
        """Record how long an exchange with the store took."""
        self._delays_seconds += seconds
        self._delays_count += 1

    def _look(self, now: float) -> None:
        cpu_seconds = self._cpu()
        busy = max(0.0, cpu_seconds - self._cpu_seconds) / (now - self._looked_at)
        self.store_delay_seconds = self._delays_seconds / max(1, self._delays_count)
        self._looked_at, self._cpu_seconds = now, cpu_seconds
        self._delays_seconds, self._delays_count = 0.0, 0
        busy_pace = self._wanted(max(busy / BUSY_SHARE, self.store_delay_seconds / STORE_DELAY_SECONDS))
        full_pace = self._wanted(max(busy / FULL_SHARE, self.store_delay_seconds / FULL_STORE_DELAY_SECONDS))
        self._seconds = max(PACE_SECONDS, min(PACE_MAX_SECONDS, busy_pace), min(PACE_FULL_MAX_SECONDS, full_pace))

    def _wanted(self, load: float) -> float:
        """Return the pause that follows a measurement of the load. `load` is in shares of its target."""
        return self._seconds * (1 + GAIN * (min(load, LOAD_MAX) - 1))


PACE = AppendPace()
"""The pause of this process."""


class Ticks:
    """Runs callbacks that are due at about the same time in the same turn of the event loop. Times are those of the
    event loop, in seconds. All objects of this class in a process use the same ticks."""

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
