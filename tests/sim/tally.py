"""Counts the rare states that a search reached, and replaces the product's metrics by counters without a registry.

There is one object per Python process; reading the counters resets them. The module does not depend on schedules. A
state that no seed reaches is not tested, so `test_sim.py` asserts every name here.
"""

from collections import Counter

from threadcast.base.telemetry import Metrics

__all__ = ["COUNTS", "METRICS", "RARE"]

COUNTS: Counter[str] = Counter()

RARE = (
    "takeover in mid-run",
    "DUP",
    "FENCED by a newer owner",
    "FENCED by a rollback",
    "append found no command",
    "release answered MORE",
    "relay_reloads gap",
    "relay_reloads position_check",
    "relay_reloads reconnected",
    "resyncs slow",
    "resyncs lost_position",
    "poisoned",
    "self-fence",
    "cached state used",
    "cached state rejected",
    "lost reply",
    "trim",
    "log compacted",
    "log to compact has grown",
    "compaction repeated",
    "log left by another worker",
    "checkpoint loaded",
    "timer fired",
    "silent owner judged",
    "live owner judged",
    "interrupted",
    "hand-over",
    "process killed",
    "process frozen",
    "memory full",
    "failover",
    "command lost to a rollback",
    "chat deleted",
    "chat made again",
    "newer log met by an older process",
    "run waited for a slot",
    "agent missing",
    "agent parked",
    "agent played again",
    "agent began again",
    "agent aborted",
    "agent recorded unknown",
    "agent recorded cancelled",
    "agent error nondeterminism",
    "answer taken back",
    "steered message taken",
    "call of a framework",
)
"""The states that the search must have seen."""


class _Child:
    """A metric, with or without labels."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def labels(self, *values: object) -> "_Child":
        return _Child(f"{self.name} {' '.join(map(str, values))}")

    def inc(self, amount: float = 1) -> None:
        COUNTS[self.name] += 1

    def set(self, value: float) -> None:
        """Gauges are not counted."""

    def observe(self, value: float) -> None:
        """Neither are times."""


def _stand_in() -> Metrics:
    metrics = Metrics.__new__(Metrics)
    for name in vars(Metrics()):
        setattr(metrics, name, _Child(name))
    return metrics


METRICS = _stand_in()
