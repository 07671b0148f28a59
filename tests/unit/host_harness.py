"""Timings, models and helpers for tests of the host."""

import anyio
import anyio.lowlevel

from tests.support.reader import Watcher
from tests.unit.actor_harness import Harness, say
from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.actor.lease_timings import LeaseTimings
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.events import ThreadUpdated

__all__ = [
    "BELLS_ONLY",
    "BUCKETS",
    "ESSAY",
    "HANG",
    "TITLE",
    "swept",
    "writing",
]

ESSAY = "demo/essay?words=60&rate=300"
HANG = "demo/hang?after=3&rate=0"

BELLS_ONLY = LeaseTimings(lease_seconds=60.0, beat_seconds=60.0, sweep_seconds=1_000.0)
"""With these timings a host sweeps once, and not again within a test."""

BUCKETS = 16

TITLE = encode([ThreadUpdated(title="x")])


async def swept(harness: Harness) -> None:
    """Wait until the first sweep is complete and nothing is due."""
    await harness.store.called("check_buckets", 1)
    await anyio.lowlevel.checkpoint()


async def writing(harness: Harness, watcher: Watcher) -> None:
    """Post a message whose answer does not end, and wait until its first words are shown."""
    await harness.post(say("write", model=HANG))
    await watcher.until(lambda w: "stream_delta" in w.types(), DEADLINE_SECONDS)
