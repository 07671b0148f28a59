"""Bounds the request bodies that a process reads at the same time, of one caller and of all callers (SEC-5).

A caller that sends large bodies slowly would otherwise fill the memory of the process, or with imports its disk. A body
counts with the bytes that have arrived, until its content is stored or its request ends. No body waits for room: the
caller is told to try again, since bodies that wait for each other might wait for ever.
"""

from collections import Counter

from threadcast.base.telemetry import Metrics
from threadcast_protocol.wire.errors import RateLimited, Unavailable

__all__ = ["Bodies", "BodyRoom"]


class BodyRoom:
    """The room that one body takes until `give_back`."""

    def __init__(self, bodies: "Bodies", principal_id: str) -> None:
        self._bodies = bodies
        self._principal_id = principal_id
        self._held_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Count more bytes of the body.

        Raises:
            RateLimited: the caller sends as many bytes at once as one caller may.
            Unavailable: the process reads as many bytes as it may.
        """
        self._bodies.hold(self._principal_id, size_bytes)
        self._held_bytes += size_bytes

    def give_back(self) -> None:
        self._bodies.release(self._principal_id, self._held_bytes)
        self._held_bytes = 0


class Bodies:
    """Counts the bytes of bodies that are being read. `what` names them in refusals."""

    def __init__(self, metrics: Metrics, per_principal_bytes: int, max_bytes: int, what: str = "requests") -> None:
        self._metrics = metrics
        self._per_principal_bytes = per_principal_bytes
        self._max_bytes = max_bytes
        self._what = what
        self._held_bytes: Counter[str] = Counter()
        self._total_bytes = 0

    def hold(self, principal_id: str, size_bytes: int) -> None:
        """Count bytes of a body; raises what `BodyRoom.take` raises, and then counts nothing."""
        if self._held_bytes[principal_id] + size_bytes > self._per_principal_bytes:
            raise RateLimited(
                f"you send {self._what} of more than {self._per_principal_bytes} bytes at the same time; send them one "
                "after the other"
            )
        if self._total_bytes + size_bytes > self._max_bytes:
            raise Unavailable(f"this server reads as many bytes of {self._what} as it may just now; try again")
        self._held_bytes[principal_id] += size_bytes
        self._total_bytes += size_bytes
        self._metrics.body_bytes_inflight.inc(size_bytes)

    def release(self, principal_id: str, size_bytes: int) -> None:
        """Uncount bytes. A caller without bodies takes no place in the table."""
        self._total_bytes -= size_bytes
        self._metrics.body_bytes_inflight.dec(size_bytes)
        self._held_bytes[principal_id] -= size_bytes
        if not self._held_bytes[principal_id]:
            del self._held_bytes[principal_id]
