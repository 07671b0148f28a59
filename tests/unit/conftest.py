"""Fixtures of the unit tests."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.actor_harness import Harness


@pytest.fixture
def harness() -> "Harness":
    """A store in memory with any number of workers and readers. A test file may replace this fixture by its own
    `harness`."""
    from tests.unit.actor_harness import Harness  # most unit tests need neither the worker nor the web half

    return Harness()
