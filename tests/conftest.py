"""What all tests share: the event loop they run on, patience on a machine that does much else, and the order of files.

Where files run side by side (`pytest -n 4 --dist loadfile`) those with slow tests begin first, the slowest at the very
beginning, so that no process is left alone with one at the end. In one process the order is pytest's own.
"""

from collections import defaultdict

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")

SLOW_SECONDS = 10.0
"""Of a test that is marked `slow` without a number."""


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the product does."""
    return "asyncio"


def pytest_configure(config: pytest.Config) -> None:
    """xdist would begin with the files of most tests, which are the quick ones."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):  # not a process of xdist
        return
    seconds: defaultdict[str, float] = defaultdict(float)
    for item in items:
        if (mark := item.get_closest_marker("slow")) is not None:
            seconds[item.nodeid.partition("::")[0]] += mark.args[0] if mark.args else SLOW_SECONDS
    items.sort(key=lambda item: -seconds[item.nodeid.partition("::")[0]])
