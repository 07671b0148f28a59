"""Limits the streams of each caller: the open streams, the chats on them, and the openings per second.

`Admissions` belongs to the hub. An admission is taken before anything else is done for a stream, so that a
refusal costs little. Opening a stream costs the process about 2 ms, even if the client disconnects at once. Each chat
on a stream of several chats takes up to 23 kB and a subscription at the store, even if no chat has the id.
"""

import math
import time
from collections import Counter

from threadcast.settings.limits import Limits
from threadcast_protocol.wire.errors import RateLimited

__all__ = ["Admission", "Admissions", "OpenedTooFast", "Rate"]

CHATS_PER_STREAM = 6
"""The default limit of a caller's chats on streams of several chats, as a multiple of its limit of streams. 256 streams
give 1,536 chats, which take 35 MB."""

CHATS_MIN = 128
"""The minimum of the default limit of chats: two streams with the maximum number of chats each (PROTOCOL §4)."""

BURST_SECONDS = 10
"""Seconds without an opening after which a caller may open all of its streams at once, as clients do after a
restart."""

BURST_MIN = 256
"""The minimum burst: even a caller with a low limit of streams may open and close many streams within a short time."""

REMEMBERED_MAX = 10_000
"""The maximum number of callers whose rate is remembered, which takes about 2 MB. Callers come from the configuration,
so there are seldom so many."""


class OpenedTooFast(RateLimited):
    """Raised when a caller opens streams, or adds chats to streams, faster than its limit allows. The caller may
    continue after `retry_after_seconds`."""

    def __init__(self, message: str, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Rate:
    """Limits each caller to `per_second` actions per second, and to `burst` actions at once. Stores one time for each
    caller: the time at which the caller may use its full burst again."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._seconds_of_one = 1 / per_second
        self._burst_seconds = burst / per_second
        self._whole_at: dict[str, float] = {}  # in the order of the latest use

    def take(self, principal_id: str, count: int, now: float) -> float:
        """Count `count` actions, which must not be more than the burst. Returns 0 if the actions are allowed. Otherwise
        counts nothing and returns the seconds to wait."""
        whole_at = max(now, self._whole_at.get(principal_id, now)) + count * self._seconds_of_one
        if (wait := whole_at - now - self._burst_seconds) > 1e-6:  # the sums of floats are not exact
            return wait
        self._whole_at.pop(principal_id, None)
        self._whole_at[principal_id] = whole_at
        if len(self._whole_at) > REMEMBERED_MAX:
            del self._whole_at[next(iter(self._whole_at))]
        return 0.0


class Admissions:
    """Counts the streams of this process, and the chats on them, for each caller."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._chats_max = limits.watched_chats_per_principal or max(
            CHATS_MIN, CHATS_PER_STREAM * limits.streams_per_principal
        )
        burst = max(BURST_MIN, limits.streams_per_principal)
        per_second = limits.stream_openings_per_second or burst / BURST_SECONDS
        self._streams = Rate(per_second, burst)
        self._chats = Rate(per_second * CHATS_PER_STREAM, max(self._chats_max, burst * CHATS_PER_STREAM))
        self._streams_count = 0
        self._streams_of: Counter[str] = Counter()
        self._chats_of: Counter[str] = Counter()

    def taken(self, principal_id: str) -> "Admission":
        """Return an `Admission` for one more stream, which counts while its `with` block runs.

        Raises:
            RateLimited: this caller or the process has reached its limit of streams.
            OpenedTooFast: this caller has opened too many streams within seconds.
        """
        if self._streams_of[principal_id] >= self._limits.streams_per_principal:
            raise RateLimited(
                f"you have {self._limits.streams_per_principal} open streams; close one, or share one for chats"
            )
        if self._streams_count >= self._limits.streams_max:
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
        self._streams_count += 1

    def leave(self, admission: "Admission") -> None:
        """Stop counting the stream and its chats."""
        self.change(admission, 0, 0)
        self._streams_of[admission.principal_id] -= 1
        self._streams_count -= 1
        if not self._streams_of[admission.principal_id]:
            del self._streams_of[admission.principal_id]


class Admission:
    """Counts one stream during its `with` block. This is a class, because each open stream has an admission, and a
    generator with contextlib's wrapper would take half a kilobyte more (`bench.memory`)."""

    __slots__ = ("_admissions", "chats", "principal_id")

    def __init__(self, admissions: Admissions, principal_id: str) -> None:
        self._admissions = admissions
        self.principal_id = principal_id
        self.chats = 0

    def change(self, chats: int, added: int = 0) -> None:
        """Record that this stream of several chats is going to have `chats` chats, `added` of them new.

        Raises:
            RateLimited: the caller's streams would exceed their limit of chats; nothing was recorded.
            OpenedTooFast: the caller has added too many chats within seconds; nothing was recorded.
        """
        self._admissions.change(self, chats, added)

    def __enter__(self) -> "Admission":
        self._admissions.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._admissions.leave(self)
