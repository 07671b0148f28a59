"""A fleet for each test of a killed owner, over a store of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fleet import FAST, Fleet, fleet_on_new_store


@pytest.fixture
async def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    """A web process and two workers with the tools of the file's `APP`; their limits are `FAST`, or the limits in the
    test's parameter."""
    limits: dict[str, str] = getattr(request, "param", FAST)
    with fleet_on_new_store(tmp_path, "--app", str(request.module.APP), limits=limits) as opened:
        await opened.open()
        yield opened
