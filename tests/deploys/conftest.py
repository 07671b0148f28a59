"""A fleet for each test, or one for a whole file, over a store of its own."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.deploys.fleet import Fleet, opened_fleet
from tests.integration.server_fixtures import chat_id

__all__ = ["chat_id", "fleet", "shared_fleet"]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Nothing runs yet but the store."""
    with ExitStack() as stack:
        yield (opened := opened_fleet(stack, tmp_path))
        opened.end()


@pytest.fixture(scope="module")
def shared_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The same, for all tests of a file."""
    with ExitStack() as stack:
        yield (opened := opened_fleet(stack, tmp_path_factory.mktemp("fleet")))
        opened.end()
