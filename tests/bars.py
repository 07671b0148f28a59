"""Time limits of tests: a test allows the promised time, or three times as much or more on a busy machine.

A promise in seconds is the product's; the seconds in which it waits for a processor are the machine's. A test asks for
the limit at the moment it judges, so that on an idle machine the limit is the promise itself.
"""

import os
from pathlib import Path

__all__ = ["bar_seconds", "is_busy"]

BUSY_PERCENT = 40.0
"""Of the last ten seconds in which somebody who could have run had to wait: a test of several processes alone on two
processors stays below."""

BUSY_FACTOR = 3.0
"""Six test files side by side on two processors, each with several processes of its own that mostly wait."""


def bar_seconds(promised_seconds: float) -> float:
    """For what was measured just now. Where the programs of the last minute had less than a third of a processor each,
    all of them took longer in the same measure."""
    if not is_busy():
        return promised_seconds
    return promised_seconds * max(BUSY_FACTOR, os.getloadavg()[0] / (os.cpu_count() or 1))


def is_busy() -> bool:
    """By the kernel's pressure figures; where there are none, by who runs beside this test."""
    try:
        some = Path("/proc/pressure/cpu").read_text().split()
    except OSError:
        return "PYTEST_XDIST_WORKER" in os.environ
    return float(some[1].removeprefix("avg10=")) > BUSY_PERCENT
