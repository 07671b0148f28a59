"""Owners that no longer listen: a worker that has itself listened for the length of a lease looks for such owners
twice, with a pause between the looks."""

import time
from collections import deque

import anyio
import anyio.lowlevel
import pytest

from tests.unit.actor_harness import CHAT, Harness, say
from tests.unit.faulty_store import DEADLINE_SECONDS
from threadcast.actor import silent_owners
from threadcast.actor.lease_timings import LeaseTimings
from threadcast.actor.silent_owners import SilentOwners
from threadcast.chat.entries import Fence
from threadcast.store.memory.store import MemoryStore
from threadcast.store.ports import EndedLeases
from threadcast_protocol.wire.errors import Unavailable

pytestmark = pytest.mark.anyio

LEASE_SECONDS = 3.5
BUCKET = 5
TIMINGS = LeaseTimings(lease_seconds=0.2, beat_seconds=0.05, sweep_seconds=0.02)
"""The clock of the harness's store stands still, so a lease ends only because its owner is silent."""


class _Signals:
    """A subscription that has lasted for this many seconds; None stands for a lost subscription."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds

    @property
    def is_empty(self) -> bool:
        return True

    def __aiter__(self) -> "_Signals":
        return self

    async def __anext__(self) -> str | None:
        raise StopAsyncIteration

    def heard_since(self, bucket: int) -> float | None:
        assert bucket == BUCKET
        return None if self.seconds is None else time.monotonic() - self.seconds


class _Store(MemoryStore):
    """Gives the answers that the test sets, and keeps the times of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.silent: list[str] = []
        self.ended: deque[EndedLeases | Exception] = deque()
        self.looks: list[float] = []
        self.ends: list[tuple[float, str]] = []

    async def silent_owners(self, bucket: int, worker: str) -> list[str]:
        self.looks.append(time.monotonic())
        return list(self.silent)

    async def end_leases(self, bucket: int, worker: str, owner: str, cursor: str) -> EndedLeases:
        self.ends.append((time.monotonic(), cursor))
        answer = self.ended.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer


def looking(seconds: float | None = 2 * LEASE_SECONDS) -> tuple[SilentOwners, _Store, _Signals]:
    store, signals = _Store(), _Signals(seconds)
    silent = SilentOwners(store, "w2", LEASE_SECONDS)
    silent.signals = signals
    return silent, store, signals


async def test_the_second_look_comes_after_a_pause_and_goes_through_all_pages() -> None:
    silent, store, _ = looking()
    store.silent = ["w1"]
    store.ended.extend([EndedLeases(3, "17"), EndedLeases(0, "9"), EndedLeases(2, "")])
    assert await silent.look(BUCKET) == ["w1"]
    assert await silent.judge(BUCKET, "w1")
    assert [cursor for _, cursor in store.ends] == ["0", "17", "9"]
    assert store.ends[0][0] - store.looks[0] >= 0.15
    assert silent_owners.LOOK_GAP_SECONDS >= 0.15


async def test_an_owner_is_judged_once_as_long_as_it_is_silent() -> None:
    silent, store, _ = looking()
    store.silent = ["w1"]
    store.ended.extend([EndedLeases(0, ""), EndedLeases(1, "")])
    assert await silent.look(BUCKET) == ["w1"]
    assert await silent.look(BUCKET) == []
    assert not await silent.judge(BUCKET, "w1")
    assert await silent.look(BUCKET) == []
    store.silent = []
    assert await silent.look(BUCKET) == []
    store.silent = ["w1"]
    assert await silent.look(BUCKET) == ["w1"], "it has listened in between"


@pytest.mark.parametrize("seconds", [None, 0.0, LEASE_SECONDS - 0.5])
async def test_a_worker_without_a_subscription_of_a_lease_does_not_look(seconds: float | None) -> None:
    silent, store, _ = looking(seconds)
    store.silent = ["w1"]
    assert await silent.look(BUCKET) == []
    assert store.looks == []
    assert silent.is_unheard(BUCKET) is (seconds is None)
    silent.signals = None
    assert await silent.look(BUCKET) == []
    assert not silent.is_unheard(BUCKET), "it has only begun"


async def test_whose_own_subscription_is_lost_before_the_second_look_gives_no_verdict() -> None:
    silent, store, signals = looking()
    store.silent = ["w1"]
    assert await silent.look(BUCKET) == ["w1"]
    signals.seconds = 0.01
    assert not await silent.judge(BUCKET, "w1")
    assert store.ends == []
    signals.seconds = 2 * LEASE_SECONDS
    assert await silent.look(BUCKET) == ["w1"], "and looks again afterwards"


async def test_after_a_failed_call_the_owner_is_found_again() -> None:
    silent, store, _ = looking()
    store.silent = ["w1"]
    store.ended.extend([EndedLeases(3, "17"), Unavailable("away")])
    assert await silent.look(BUCKET) == ["w1"]
    with pytest.raises(Unavailable):
        await silent.judge(BUCKET, "w1")
    assert await silent.look(BUCKET) == ["w1"]


# in a host


async def test_a_host_takes_the_chats_of_an_owner_that_does_not_listen(harness: Harness) -> None:
    await harness.abandoned("w1", say("hello"))
    async with harness.watching() as watcher, harness.hosting("w2", TIMINGS):
        await watcher.at_rest(1, DEADLINE_SECONDS)
    fences = [entry.fence for entry in await harness.store.read_log(CHAT) if entry.fence]
    assert fences == [Fence("w1", "wake"), Fence("w2", "takeover")]


async def test_a_host_leaves_an_owner_that_listens_alone(harness: Harness) -> None:
    await harness.abandoned("w1", say("hello"))
    async with harness.store.inbox_signals("w1"), harness.hosting("w2", TIMINGS):
        looks = harness.store.calls["silent_owners"]
        await harness.store.called("silent_owners", looks + 200)
        assert harness.store.calls["end_leases"] == 0
        assert harness.store.calls["take"] == 1


async def test_the_end_of_an_owner_that_had_not_begun_counts_against_no_command(harness: Harness) -> None:
    await harness.post(say("hello"))
    await harness.claim("w1")
    async with harness.watching() as watcher, harness.hosting("w2", TIMINGS):
        await watcher.at_rest(1, DEADLINE_SECONDS)
    fences = [entry.fence for entry in await harness.store.read_log(CHAT) if entry.fence]
    assert fences == [Fence("w2", "wake")]


async def test_a_host_whose_subscription_is_lost_claims_nothing(harness: Harness) -> None:
    async with harness.watching() as watcher, harness.hosting("w1", TIMINGS) as host:
        while host._silent.signals is None:
            await anyio.lowlevel.checkpoint()
        lost = _Signals(None)
        lost.heard_since = lambda bucket: None  # type: ignore[method-assign] # of any bucket
        heard, host._silent.signals = host._silent.signals, lost
        claims = harness.store.calls["claim"]
        await harness.post(say("hello"))
        await anyio.sleep(5 * TIMINGS.sweep_seconds)
        assert harness.store.calls["claim"] == claims
        host._silent.signals = heard
        await watcher.at_rest(1, DEADLINE_SECONDS)
