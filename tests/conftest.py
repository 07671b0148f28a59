"""Settings of all tests: their event loop, longer deadlines on a busy machine, and the order of files.

If files run side by side (`pytest -n 4 --dist loadfile`), the longest files begin first, so that no process runs a long
file alone at the end. Files of different folders are then mixed, so that files that need a processor (`browser`) run
beside files that mostly wait (`faults`, `deploys`). In one process the order is pytest's own.
"""

import gc
import time
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")

SCREENS = Path(__file__).parents[1] / "build" / "screens"
"""Directory in which `tests/browser` stores pictures of the page."""

BEGAN = pytest.StashKey[float]()

SLOW_SECONDS = 10.0
"""The usual seconds of a test that is marked `slow` without a number."""

TEST_SECONDS = {
    "browser": 3.0,
    "deploys": 4.0,
    "docs": 4.0,
    "failover": 3.0,
    "faults": 4.0,
    "resources": 4.0,
    "security": 2.0,
    "unit": 0.05,
}
"""Usual seconds of one test by folder, as measured beside five other processes; 1 in all other folders."""


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the product does."""
    return "asyncio"


def pytest_configure(config: pytest.Config) -> None:
    """By default xdist begins with the files that have the most tests, but these are the quick files."""
    gc.disable()  # collecting the tests only makes objects; garbage collection would take a third of its time
    config.stash[BEGAN] = time.time()
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempt the 600,000 objects of the collected tests from garbage collection. On a busy machine, each full
    collection of them stopped the process for seconds, in which the deadlines of a test's own requests passed."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report the stored pictures, if any."""
    new = [path for path in SCREENS.glob("*.png") if path.stat().st_mtime >= config.stash[BEGAN]]
    if new:
        terminalreporter.write_line(f"{len(new)} pictures of the page are in {SCREENS}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):  # not a process of xdist
        return
    seconds: defaultdict[str, float] = defaultdict(float)
    counted: set[int] = set()
    for item in items:
        file = item.nodeid.partition("::")[0]
        seconds[file] += TEST_SECONDS.get(file.split("/")[1], 1.0)
        for mark in item.iter_markers("slow"):
            if id(mark) not in counted:  # a mark may be on a file, or on a test with many parameters
                counted.add(id(mark))
                seconds[file] += mark.args[0] if mark.args else SLOW_SECONDS
    items.sort(key=lambda item: -seconds[item.nodeid.partition("::")[0]])
