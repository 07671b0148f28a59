"""Measures how steady the machine is: repeats one fixed piece of work and compares wall-clock and CPU times.

Every report shows this noise, because ratios measured on a busy machine are less reliable.
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
"""The size of the piece of work: about 10 ms of hashing, which is longer than a scheduler's slice and short enough for
sixty repetitions."""


class Noise(msgspec.Struct, frozen=True):
    """The noise as fractions of the median: 0.5 means half as much again."""

    wall_p90: float
    """How much longer the slowest tenth took in wall-clock time, because other programs used the processor."""
    cpu_p90: float
    """How much longer the slowest tenth took in CPU time, because of caches, clock rates and hyper-threads."""
    stolen: float
    """The fraction of the time that other virtual machines on the same host took."""
    load: float
    """The number of ready processes for each core, over the last minute."""

    def __str__(self) -> str:
        return (
            f"+{self.wall_p90:.0%} in wall-clock time, +{self.cpu_p90:.0%} in CPU time "
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
