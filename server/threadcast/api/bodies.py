"""Limits the bytes of request bodies that a process reads at the same time, for each caller and for all callers
together (SEC-5).

A caller that sends large bodies slowly would otherwise fill the memory of the process, or with imports its disk. For
the limit of its caller, a body counts with its whole Content-Length from the beginning. So if a caller sends more
bodies than the limit allows, the first bodies are read to their end, and the others are refused before they arrive. For
the limit of all callers, only the bytes that have arrived count: otherwise a caller could lock out other callers by
announcing more bytes than it sends. A body counts until its content is stored or its request ends. No body waits for
room: the caller is told to try again, since bodies that wait for each other might wait for ever.
"""

from collections import Counter

from threadcast.base.telemetry import Metrics
from threadcast_protocol.wire.errors import RateLimited, Unavailable

__all__ = ["Bodies", "BodyRoom"]


class BodyRoom:
    """Counts the bytes of one body until `give_back`."""

    def __init__(self, bodies: "Bodies", principal_id: str) -> None:
        self._bodies = bodies
        self._principal_id = principal_id
        self._reserved_bytes = 0
        self._arrived_bytes = 0

    def reserve(self, size_bytes: int) -> None:
        """Count the size of the whole body for the limit of its caller.

        Raises:
            RateLimited: the caller sends as many bytes at once as one caller may.
        """
        self._bodies.reserve(self._principal_id, size_bytes)
        self._reserved_bytes += size_bytes

    def take(self, size_bytes: int) -> None:
        """Count bytes that have arrived.

        Raises:
            RateLimited: the caller sends as many bytes at once as one caller may.
            Unavailable: the process has reached the maximum of bytes that it reads at once.
        """
        beyond_bytes = self._arrived_bytes + size_bytes - self._reserved_bytes
        if beyond_bytes > 0:
            self.reserve(beyond_bytes)
        self._bodies.take(size_bytes)
        self._arrived_bytes += size_bytes

    def give_back(self) -> None:
        self._bodies.release(self._principal_id, self._reserved_bytes, self._arrived_bytes)
        self._reserved_bytes = self._arrived_bytes = 0


class Bodies:
    """Counts the bytes of bodies that are being read. `what` names the bodies in refusals."""

    def __init__(self, metrics: Metrics, per_principal_bytes: int, max_bytes: int, what: str = "requests") -> None:
        self._metrics = metrics
        self._per_principal_bytes = per_principal_bytes
        self._max_bytes = max_bytes
        self._what = what
        self._reserved_bytes: Counter[str] = Counter()
        self._arrived_bytes = 0

    def reserve(self, principal_id: str, size_bytes: int) -> None:
        """Count bytes of a caller, or raise RateLimited and count nothing."""
        if self._reserved_bytes[principal_id] + size_bytes > self._per_principal_bytes:
            raise RateLimited(
                f"you send {self._what} of more than {self._per_principal_bytes} bytes at the same time; send them one "
                "after the other"
            )
        self._reserved_bytes[principal_id] += size_bytes

    def take(self, size_bytes: int) -> None:
        """Count bytes that have arrived, or raise Unavailable and count nothing."""
        if self._arrived_bytes + size_bytes > self._max_bytes:
            raise Unavailable(f"this server reads as many bytes of {self._what} as it may just now; try again")
        self._arrived_bytes += size_bytes
        self._metrics.body_bytes_inflight.inc(size_bytes)

    def release(self, principal_id: str, reserved_bytes: int, arrived_bytes: int) -> None:
        """Uncount bytes. A caller without bodies keeps no entry in the table."""
        self._arrived_bytes -= arrived_bytes
        self._metrics.body_bytes_inflight.dec(arrived_bytes)
        self._reserved_bytes[principal_id] -= reserved_bytes
        if not self._reserved_bytes[principal_id]:
            del self._reserved_bytes[principal_id]
