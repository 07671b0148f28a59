"""Time limits of tests: a test allows the promised time, or three times as much or more on a busy machine.

The product is responsible for the promised seconds; the machine is responsible for the time that processes wait for a
processor. A test computes the limit at the moment of the comparison; on an idle machine the limit is the promise
itself.
"""

import os
from pathlib import Path

__all__ = ["bar_seconds", "is_busy"]

BUSY_PERCENT = 40.0
"""Limit of the kernel's pressure figure: percent of the last ten seconds in which some runnable process waited for a
processor. A test that runs alone on two processors, with several processes of its own, stays below this limit."""

BUSY_FACTOR = 3.0
"""Measured with six test files side by side on two processors, each with several processes of its own that mostly
wait."""


def bar_seconds(promised_seconds: float) -> float:
    """Return the limit for a measurement that has just ended. On a busy machine the limit is three times the promise.
    If the programs of the last minute each had less than a third of a processor, everything took longer by the same
    factor, and the limit is longer by that factor."""
    if not is_busy():
        return promised_seconds
    return promised_seconds * max(BUSY_FACTOR, os.getloadavg()[0] / (os.cpu_count() or 1))


def is_busy() -> bool:
    """Return whether the machine is busy. The kernel's pressure figures decide; where the kernel has none, the machine
    counts as busy if pytest runs in several processes."""
    try:
        some = Path("/proc/pressure/cpu").read_text().split()
    except OSError:
        return "PYTEST_XDIST_WORKER" in os.environ
    return float(some[1].removeprefix("avg10=")) > BUSY_PERCENT
