"""The durations that keep a chat with its worker: the lease, the heartbeats and the sweeps (DISPATCH §7)."""

from dataclasses import dataclass

__all__ = ["LeaseTimings"]


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """The duration of a lease, the interval between a worker's heartbeats, and the interval between its sweeps for
    waiting chats."""

    lease_seconds: float
    beat_seconds: float
    sweep_seconds: float

    @classmethod
    def of_lease(cls, lease_seconds: float) -> "LeaseTimings":
        """Return the timings for a lease of `lease_seconds`. Three heartbeats fit into a lease, so that two may be
        lost. The sweeps find a chat soon after its lease has ended. The proportions were measured together (DISPATCH
        §7: lease 3.5 s, beat 1.1 s, sweep 0.4 s ± 50 %)."""
        return cls(lease_seconds, lease_seconds * 1.1 / 3.5, lease_seconds * 0.4 / 3.5)

    @property
    def lease_ms(self) -> int:
        return int(self.lease_seconds * 1000)
