"""Logs and delays the 401 answers to an address from which a program guesses tokens or still uses a removed token.

A token is 256 random bits (`threadcast token`), so guessing a token is hopeless; this module only limits the log and
the work that such requests cause. Requests with a valid token are never delayed, even if other callers have the same
address. A delayed answer holds a connection and a task, so only a few answers wait at the same time; a further answer
is sent at once and closes its connection. All tables are bounded, because a caller with many addresses would fill them.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterable

import anyio
import structlog
from starlette.types import Scope

from threadcast.http.addresses import LOOPBACK, caller_of, networks_of
from threadcast.settings.limits import DEFAULT_LIMITS, Limits

__all__ = ["RefusedTokens"]

_log = structlog.get_logger()

MINUTE_SECONDS = 60.0
"""Seconds in which the 401 answers to one address are counted, and in which the log gets at most one line about that
address."""

REMEMBERED_MAX = 10_000
"""Maximum number of addresses that are counted at the same time, about 3 MB. A further address replaces the oldest
address."""

LINES_MAX = 100
"""Maximum log lines within a minute for all addresses together. One line without an address sums up the rest."""

WAITING_MAX = 500
"""Maximum number of delayed answers that wait at the same time in this process; each takes about 20 kB with its
connection."""

WAITING_OF_ONE_MAX = 10
"""Maximum number of delayed 401 answers that wait for one address at the same time. A program that sends its requests
one after the other never has more than one waiting answer."""


class _Address:
    """The 401 answers to one address in the minute that ends at `ends_at`: `count` answers, of which the log already
    reports `logged`."""

    __slots__ = ("count", "ends_at", "logged")

    def __init__(self, ends_at: float) -> None:
        self.ends_at = ends_at
        self.count = 0
        self.logged = 0


class RefusedTokens:
    """Counts the 401 answers of this process. `proxies` are the networks of trusted proxies, besides loopback."""

    def __init__(
        self, limits: Limits = DEFAULT_LIMITS, proxies: Iterable[str] = (), *, minute_seconds: float = MINUTE_SECONDS
    ) -> None:
        self._free = limits.unauthorized_per_minute
        self._delay_seconds = limits.unauthorized_delay_seconds
        self._proxies = networks_of((*LOOPBACK, *proxies))
        self._addresses: dict[str, _Address] = {}  # in the order of `ends_at`
        self._waiting: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._minute_seconds = minute_seconds
        self._lines = 0
        self._lines_end_at = -math.inf
        self._unlogged = 0  # refusals of addresses that got no log line

    async def note(self, scope: Scope) -> bool:
        """Count a request that is about to be answered with 401, and wait if its address has had many such answers.
        Returns whether the answer must close its connection, because too many others wait."""
        caller = caller_of(scope, self._proxies)
        if self._count(caller) <= self._free or not self._delay_seconds:
            return False
        if self._waiting[caller] >= WAITING_OF_ONE_MAX or self._waiting.total() >= WAITING_MAX:
            return True
        self._waiting[caller] += 1
        try:
            await anyio.sleep(self._delay_seconds)
        finally:
            self._waiting[caller] -= 1
            self._waiting = +self._waiting  # without the addresses for which no answer waits
        return False

    def _count(self, caller: str) -> int:
        now = time.monotonic()
        found = self._addresses.get(caller)
        if found is None:
            if len(self._addresses) >= REMEMBERED_MAX:
                oldest = self._addresses.pop(next(iter(self._addresses)))
                self._unlogged += oldest.count - oldest.logged
            found = self._addresses[caller] = _Address(now + self._minute_seconds)
            found.logged = 1
            self._log(caller, 1, now)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self._minute_seconds, self._end_minutes)
        found.count += 1
        return found.count

    def _end_minutes(self) -> None:
        """Log the counts of the addresses whose minute has ended, and forget the addresses without a 401 answer in that
        minute."""
        now = time.monotonic()
        self._timer = None
        while self._addresses:
            caller, found = next(iter(self._addresses.items()))
            if found.ends_at > now:
                self._timer = asyncio.get_running_loop().call_later(found.ends_at - now, self._end_minutes)
                break
            del self._addresses[caller]
            if found.count > found.logged:
                self._log(caller, found.count - found.logged, now)
            if found.count:
                self._addresses[caller] = _Address(now + self._minute_seconds)
        self._log("", 0, now)

    def _log(self, caller: str, count: int, now: float) -> None:
        """Log a line, unless there were too many lines within a minute."""
        if now >= self._lines_end_at:
            if self._unlogged:
                _log.warning("auth.refused", address="others", count=self._unlogged)
            self._unlogged, self._lines, self._lines_end_at = 0, 0, now + self._minute_seconds
        if not count:
            return
        self._lines += 1
        if self._lines > LINES_MAX:
            self._unlogged += count
        else:
            _log.warning("auth.refused", address=caller, count=count)
