"""Bounds what callers take with their streams: open streams, chats on them, and openings per second.

`Admissions` belongs to the hub. An admission is taken before anything else is done for a stream, so that a
refusal costs little. An opening costs about 2 ms of the process, also if the client leaves at once, and each chat on a
stream of several chats takes up to 23 kB and a subscription at the store, also if no chat has the id.
"""

import math
import time
from collections import Counter

from threadcast.settings.limits import Limits
from threadcast_protocol.wire.errors import RateLimited

__all__ = ["Admission", "Admissions", "OpenedTooFast", "Rate"]

CHATS_PER_STREAM = 6
"""Chats on streams of several chats for each stream that a caller may have, unless the settings have a number. 256
streams make 1,536 chats, which take 35 MB."""

CHATS_MIN = 128
"""The least of that number: two streams with as many chats as one stream may have (PROTOCOL §4)."""

BURST_SECONDS = 10
"""A caller that was silent for so long may open all of its streams at once, as clients do after a restart."""

BURST_MIN = 256
"""The least burst: a caller with few streams at once may still open and close many of them for a moment."""

REMEMBERED_MAX = 10_000
"""Callers whose rate is remembered, about 2 MB. Callers come from the configuration, so there are seldom so many."""


class OpenedTooFast(RateLimited):
    """The caller opens streams, or adds chats to them, faster than it may. `retry_after_seconds` says when it may go
    on."""

    def __init__(self, message: str, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Rate:
    """So many of something per second for each caller, and `burst` of them at once. Keeps one time per caller: the time
    at which the caller's burst is whole again."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._seconds_of_one = 1 / per_second
        self._burst_seconds = burst / per_second
        self._whole_at: dict[str, float] = {}  # in the order of the latest use

    def take(self, principal_id: str, count: int, now: float) -> float:
        """Take `count`, at most the burst. Returns 0, or the seconds to wait, and then nothing was taken."""
        whole_at = max(now, self._whole_at.get(principal_id, now)) + count * self._seconds_of_one
        if (wait := whole_at - now - self._burst_seconds) > 1e-6:  # the sums of floats are not exact
            return wait
        self._whole_at.pop(principal_id, None)
        self._whole_at[principal_id] = whole_at
        if len(self._whole_at) > REMEMBERED_MAX:
            del self._whole_at[next(iter(self._whole_at))]
        return 0.0


class Admissions:
    """The streams of this process."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._chats_max = limits.watched_chats_per_principal or max(
            CHATS_MIN, CHATS_PER_STREAM * limits.streams_per_principal
        )
        burst = max(BURST_MIN, limits.streams_per_principal)
        per_second = limits.stream_openings_per_second or burst / BURST_SECONDS
        self._streams = Rate(per_second, burst)
        self._chats = Rate(per_second * CHATS_PER_STREAM, max(self._chats_max, burst * CHATS_PER_STREAM))
        self._streams_of: Counter[str] = Counter()
        self._chats_of: Counter[str] = Counter()

    def taken(self, principal_id: str) -> "Admission":
        """Return a place for one more stream, which counts while a `with` block runs.

        Raises:
            RateLimited: this caller or the process has as many streams as it may have.
            OpenedTooFast: this caller has opened too many streams within seconds.
        """
        if self._streams_of[principal_id] >= self._limits.streams_per_principal:
            raise RateLimited(
                f"you have {self._limits.streams_per_principal} open streams; close one, or share one for chats"
            )
        if self._streams_of.total() >= self._limits.streams_max:
            raise RateLimited("this server has reached its limit of open streams; try again later")
        if wait := self._streams.take(principal_id, 1, time.monotonic()):
            raise OpenedTooFast(
                "you open streams too fast; keep a stream open, and open the next one later", math.ceil(wait)
            )
        return Admission(self, principal_id)

    def change(self, admission: "Admission", chats: int, added: int) -> None:
        """See `Admission.change`."""
        principal_id = admission.principal_id
        more = chats - admission.chats
        if more > 0 and self._chats_of[principal_id] + more > self._chats_max:
            raise RateLimited(
                f"your streams may show {self._chats_max} chats together; close a stream, or remove chats from one"
            )
        if added and (wait := self._chats.take(principal_id, added, time.monotonic())):
            raise OpenedTooFast("you add chats to streams too fast; add these chats later", math.ceil(wait))
        admission.chats = chats
        self._chats_of[principal_id] += more
        if not self._chats_of[principal_id]:
            del self._chats_of[principal_id]

    def enter(self, admission: "Admission") -> None:
        """Count the stream."""
        self._streams_of[admission.principal_id] += 1

    def leave(self, admission: "Admission") -> None:
        """Give back the stream and its chats."""
        self.change(admission, 0, 0)
        self._streams_of[admission.principal_id] -= 1
        if not self._streams_of[admission.principal_id]:
            del self._streams_of[admission.principal_id]


class Admission:
    """The place of one stream. This is a class because each open stream keeps one: a generator with contextlib's
    wrapper would take half a kilobyte more (`bench.memory`)."""

    __slots__ = ("_admissions", "chats", "principal_id")

    def __init__(self, admissions: Admissions, principal_id: str) -> None:
        self._admissions = admissions
        self.principal_id = principal_id
        self.chats = 0

    def change(self, chats: int, added: int = 0) -> None:
        """Note that this stream of several chats is going to have `chats` chats, of which `added` are new on it.

        Raises:
            RateLimited: the caller's streams would show more chats than they may; nothing was noted.
            OpenedTooFast: the caller has added too many chats within seconds; nothing was noted.
        """
        self._admissions.change(self, chats, added)

    def __enter__(self) -> "Admission":
        self._admissions.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._admissions.leave(self)
