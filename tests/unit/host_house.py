"""What the tests of the host share: a house, rhythms and models that hold a chat open."""

import anyio
import anyio.lowlevel
import pytest

from protocol.codec import encode
from protocol.events import ThreadUpdated
from server.actor.host import Rhythm
from tests.unit.actor_house import House

__all__ = [
    "BELLS_ONLY",
    "BUCKETS",
    "ESSAY",
    "HANG",
    "TITLE",
    "house",
    "swept",
]

ESSAY = "demo/essay?words=60&rate=300"
HANG = "demo/hang?after=3&rate=0"

BELLS_ONLY = Rhythm(lease_seconds=60.0, beat_seconds=60.0, sweep_seconds=1_000.0)
"""Sweeps once, then never again within a test."""

BUCKETS = 16

TITLE = encode([ThreadUpdated(title="x")])


@pytest.fixture
def house() -> House:
    return House()


async def swept(house: House) -> None:
    """Wait until the first sweep is through, with nothing due."""
    await house.store.called("claim", BUCKETS)
    await anyio.lowlevel.checkpoint()
