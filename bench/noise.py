"""How steady this machine is: one fixed piece of work again and again, by the wall and by the CPU's clock.

Stands beside every report, since a ratio taken while the machine was torn between others says less. Knows no server.
"""

import hashlib
import os
import time

import msgspec

from bench.figures import quantile
from bench.processes import stolen_seconds

__all__ = ["Noise", "noise"]

REPEATS = 60
WORK_BYTES = bytes(4_000_000)
"""Some 10 ms of hashing: longer than a scheduler's slice on a busy machine, short enough for sixty."""


class Noise(msgspec.Struct, frozen=True):
    """Shares of the median: 0.5 is half as much again."""

    wall_p90: float
    """How much longer the slowest tenth took by the wall: what others on this machine take from us."""
    cpu_p90: float
    """The same by our own CPU clock: what caches, clock rates and hyper-threads do to the same work."""
    stolen: float
    """Of the time, taken by other machines on the same host."""
    load: float
    """Processes that wanted to run, over the last minute, per core."""

    def __str__(self) -> str:
        return (
            f"+{self.wall_p90:.0%} by the wall, +{self.cpu_p90:.0%} by CPU time "
            f"(p90 over median of one fixed piece of work), {self.stolen:.0%} stolen, load {self.load:.1f} a core"
        )


def noise() -> Noise:
    """Measure for about a second."""
    walls, cpus = [], []
    stolen, began = stolen_seconds(), time.perf_counter()
    for _ in range(REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        hashlib.sha256(WORK_BYTES).digest()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    passed = time.perf_counter() - began
    cores = os.cpu_count() or 1
    return Noise(
        wall_p90=quantile(walls, 0.9) / quantile(walls, 0.5) - 1,
        cpu_p90=quantile(cpus, 0.9) / quantile(cpus, 0.5) - 1,
        stolen=(stolen_seconds() - stolen) / (passed * cores),
        load=os.getloadavg()[0] / cores,
    )
