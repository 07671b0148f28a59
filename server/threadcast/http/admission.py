"""Counts the open connections of a server, decides whether a further connection is admitted, and writes the texts of
refusals.

`Connections` belongs to one server; `connections.py` asks it for each connection.
"""

import time
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

import structlog

from threadcast.base.telemetry import Metrics
from threadcast.http.addresses import LOOPBACK, address_of, networks_of, unit_of
from threadcast.http.newcomers import Newcomers
from threadcast.http.wide_buffers import WideBuffers
from threadcast.settings.limits import Limits
from threadcast_protocol.framing.codec import encode

__all__ = ["LINGERING_MAX", "LOOPBACK", "Connections", "Refusal"]

_log = structlog.get_logger()

LINGERING_MAX = 64
"""Maximum number of connections beyond the limit that stay open until they have got their refusal. A further connection
drops the oldest of them without an answer. So refusals cannot use up the descriptors that the limits keep free. A probe
for the server's health is answered unless this many connections arrive before its request."""

LOG_SECONDS = 60.0
"""Seconds in which the log gets at most one line for each reason of refusals. The line has the number of refusals."""


_KEYS_MAX = 4_096
"""Number of addresses whose counted unit is remembered, about 1 MB: parsing an address takes 5 us, twice for each
connection."""


class Refusal:
    """The reason why a connection is refused: the HTTP status, the code (PROTOCOL §17), and a sentence for people."""

    def __init__(self, reason: str, status: str, code: str, detail: str, retry_after_seconds: int = 0) -> None:
        self.reason = reason
        body = encode({"detail": detail, "code": code})
        lines = [f"HTTP/1.1 {status}", "content-type: application/json", f"content-length: {len(body)}"]
        lines += [f"retry-after: {retry_after_seconds}"] if retry_after_seconds else []
        lines += ["cache-control: no-store", "x-content-type-options: nosniff", "connection: close", "", ""]
        self.answer = "\r\n".join(lines).encode() + body


class _Dropped(Protocol):
    """A connection that can be closed at once."""

    def drop(self) -> None: ...


class Connections:
    """Counts the open connections of one server, in all and by address."""

    def __init__(self, limits: Limits, most: int, metrics: Metrics, uncounted: Iterable[str] = LOOPBACK) -> None:
        """`most`: connections at once. `uncounted`: networks whose addresses may open any number of connections."""
        self.limits = limits
        self.head_too_large = Refusal(
            "headers",
            "431 Request Header Fields Too Large",
            "too_large",
            f"The headers of a request, its line included, must be at most {limits.header_max_bytes:,} bytes and "
            f"{limits.headers_max} fields. Send fewer or shorter headers, for instance fewer cookies.",
        )
        self.head_too_late = Refusal(
            "slow_headers",
            "408 Request Timeout",
            "timeout",
            f"The headers of a request must arrive within {limits.header_timeout_seconds:g} seconds.",
        )
        self.too_many_requests = Refusal(
            "pipelined", "429 Too Many Requests", "rate_limited", "Send fewer requests before their answers have come."
        )
        self.invalid = Refusal("invalid", "400 Bad Request", "bad_request", "The request is not valid HTTP.")
        self.silent = Refusal("silent", "408 Request Timeout", "timeout", "No request arrived.")
        self._too_many_of_one = Refusal(
            "address",
            "429 Too Many Requests",
            "rate_limited",
            f"Your address has {limits.connections_per_address:,} open connections, which is the maximum. Close some "
            "of them. If a proxy forwards requests of many people, its operator adds it to server.trusted_proxies.",
            retry_after_seconds=5,
        )
        self._too_many = Refusal(
            "total",
            "503 Service Unavailable",
            "unavailable",
            f"The server has {most:,} open connections, which is the maximum. Try again later.",
            retry_after_seconds=5,
        )
        self.newcomers = Newcomers()
        self.wide_buffers = WideBuffers(limits.subscriber_stall_seconds)
        self.lingering: dict[_Dropped, None] = {}
        self._most = most
        self._metrics = metrics
        self._uncounted = networks_of(uncounted)
        self._key = lru_cache(_KEYS_MAX)(self._key_of)
        self._total = 0
        self._of: Counter[str] = Counter()
        self._unlogged: Counter[str] = Counter()
        self._logged_at: dict[str, float] = {}

    def enter(self, address: str) -> Refusal | None:
        """Count a connection from `address`, and return the refusal if the connection may not stay, else None. Call
        `leave` later in both cases."""
        self._total += 1
        if self._total > self._most:
            return self._too_many
        if key := self._key(address):
            self._of[key] += 1
            if self._of[key] > self.limits.connections_per_address:
                return self._too_many_of_one
        return None

    def leave(self, address: str) -> None:
        """Forget a connection that `enter` counted."""
        self._total -= 1
        if key := self._key(address):
            self._of[key] -= 1
            if self._of[key] <= 0:
                del self._of[key]

    def linger(self, connection: _Dropped) -> _Dropped | None:
        """Remember a connection that is refused but still open. Returns an older refused connection that must be
        dropped instead, or None. A connection removes itself from `lingering` when it is closed."""
        self.lingering[connection] = None
        if len(self.lingering) <= LINGERING_MAX:
            return None
        oldest = next(iter(self.lingering))
        del self.lingering[oldest]
        return oldest

    def note(self, refusal: Refusal, address: str) -> None:
        """Count a refusal, and log it unless a refusal for the same reason was logged within the last minute."""
        self._metrics.connections_refused.labels(refusal.reason).inc()
        self._unlogged[refusal.reason] += 1
        now = time.monotonic()
        if now - self._logged_at.get(refusal.reason, -LOG_SECONDS) >= LOG_SECONDS:
            self._logged_at[refusal.reason] = now
            count = self._unlogged.pop(refusal.reason)
            _log.warning("connections.refused", reason=refusal.reason, count=count, last_address=address)

    def _key_of(self, address: str) -> str:
        """Return the address or network under which `address` is counted; '' if it is not counted."""
        parsed = address_of(address)
        if parsed is None or any(parsed in network for network in self._uncounted):
            return ""
        return unit_of(parsed)
