"""Decides whether a worker claims further chats, by its load. The gate uses no clock, network or tasks.

A worker whose event loop has no time left makes every chat wait, so it leaves further chats to other workers. A chat
that no other worker has claimed for `WAIT_SECONDS` is claimed all the same, up to `limits.worker_max_chats`, since a
slow answer is better than none. Chats whose owner died, and the first `CHATS_LEAST` chats, never wait (decision 0048).
"""

import math

__all__ = ["CHATS_LEAST", "LOOK_SECONDS", "WAIT_SECONDS", "ClaimGate"]

LOOK_SECONDS = 0.25
"""Seconds between two measurements of the load."""

BUSY_SHARE = 0.95
"""The share of a core at which the event loop counts as full. As long as longer pauses between appends help, they keep
the loop at 60 % and then at 85 % (`base/append_pace.py`), so pauses cannot help a loop above this share."""

LAG_SECONDS = 0.1
"""The lag of the event loop's timers at which it counts as full, also if other programs take its CPU time. Readers then
see tokens up to 250 ms late: half of the longest pause between appends, and this lag when the worker receives them."""

STORE_DELAY_SECONDS = 0.5
"""The mean time of an exchange with the store at which no further chats are claimed: a quarter of the time after which
commands count as failed. Even a distant store with a long round trip answers sooner."""

SMOOTH_SECONDS = 1.0
"""The time over which loads are averaged, so that neither a burst of new chats nor one slow callback counts."""

LOAD_MAX = 2.0
"""The maximum load that one measurement contributes. After the loop was blocked for a long time, the gate opens again
three seconds later."""

OPEN_LOAD = 0.92
"""The gate closes at a load of 1 and opens again below this load. A loop that the pause between appends keeps at 85 %
of a core has a load of 0.89."""

CHATS_LEAST = 40
"""The number of chats that a worker claims regardless of its load. The appends of 40 chats do not make a worker busy
(`base/append_pace.py`). If the tools of these chats do, claiming fewer chats would not help."""

WAIT_SECONDS = 10.0
"""Seconds that a chat waits for another worker while this worker is full. A worker with room takes the chat within
milliseconds, and an orchestrator needs some seconds to start another worker. Web processes report chats that wait for
more than 5 s (`http/readiness.py`)."""

STEP_COUNT, STEP_SHARE = 64, 1 / 16
"""From one measurement to the next, the number of owned chats grows by at most `STEP_COUNT` plus `STEP_SHARE` times
this number. One core can begin about 256 chats a second."""

CAREFUL_LOAD = 0.6
"""Above this load the steps become smaller, down to `STEP_LEAST_SHARE` of a whole step at a load of 1, because a
claimed chat causes load only some seconds later."""

STEP_LEAST_SHARE = 0.1


class ClaimGate:
    """The gate of one worker. `look` is called every `LOOK_SECONDS`; the gate is open until the first call."""

    def __init__(self) -> None:
        self.load = 0.0
        """The smoothed load of this worker; at a load of 1 it claims no further chats."""
        self.is_full = False
        """Whether chats are left to other workers."""
        self._looked_at = -math.inf
        self._cpu_seconds = 0.0
        self._chats_count = 0

    def look(
        self, now: float, cpu_seconds: float, chats_count: int, lag_seconds: float, store_delay_seconds: float
    ) -> None:
        """Note the present state: the clock, the CPU time of the event loop's thread so far, the number of owned chats,
        the delay with which the loop has just run a timer, and the mean time of an exchange with the store since the
        last look."""
        elapsed_seconds = now - self._looked_at
        busy = max(0.0, cpu_seconds - self._cpu_seconds) / elapsed_seconds if 0 < elapsed_seconds < math.inf else 0.0
        self._looked_at, self._cpu_seconds, self._chats_count = now, cpu_seconds, chats_count
        loads = (busy / BUSY_SHARE, lag_seconds / LAG_SECONDS, store_delay_seconds / STORE_DELAY_SECONDS)
        share = -math.expm1(-min(elapsed_seconds, 60.0) / SMOOTH_SECONDS)
        self.load += share * (min(LOAD_MAX, max(loads)) - self.load)
        self.is_full = self.load >= (OPEN_LOAD if self.is_full else 1.0)

    def room(self, chats_count: int) -> int:
        """Return how many further chats a worker with `chats_count` chats may claim before the next look."""
        over = (self.load - CAREFUL_LOAD) / (1 - CAREFUL_LOAD)
        step = (STEP_COUNT + STEP_SHARE * self._chats_count) * max(STEP_LEAST_SHARE, min(1.0, 1 - over))
        return max(0, int(step) - max(0, chats_count - self._chats_count))

    def takes_new(self, chats_count: int) -> bool:
        """Return whether the worker may claim chats that have just become due."""
        return not self.is_full or chats_count < CHATS_LEAST
