"""Hides the product's log lines, because fuzzing causes thousands of errors on purpose."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.configure(**before)
