"""Fleets over separate stores, for each test or for a whole file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.server_fixtures import chat_id
from tests.support.fleet import Fleet, fleet_on_new_store

__all__ = ["chat_id", "fleet", "shared_fleet"]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A fleet that has no process yet."""
    with fleet_on_new_store(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet that has no process yet, for all tests of a file."""
    with fleet_on_new_store(tmp_path_factory.mktemp("fleet")) as opened:
        yield opened
