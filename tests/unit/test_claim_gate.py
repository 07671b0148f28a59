"""A worker leaves new chats to others while its event loop or its store is full; it neither oscillates nor starves."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast.actor.claim_gate import CHATS_LEAST, LOOK_SECONDS, OPEN_LOAD, STEP_COUNT, STEP_SHARE, ClaimGate
from threadcast.base.append_pace import AppendPace

US_READ, US_APPEND = 4.0, 90.0
"""The worker's CPU time for reading a token, and for an append, measured by `bench.tokens` at 50 and 500 chats."""

BEGIN_SECONDS = 0.003
"""The worker's CPU time from a claim to the first delta."""

TOKENS_PER_SECOND = 50


class Worker:
    """A worker whose chats stream, with the product's append pause and gate. Claimed chats cause load after
    `begin_seconds`."""

    def __init__(self, begin_seconds: float = 1.0) -> None:
        self.time = self.cpu = 100.0
        self.chats: list[float] = []  # the time at which each chat begins to stream
        self.begin_seconds = begin_seconds
        self.gate = ClaimGate()
        self.pace = AppendPace(lambda: self.time, lambda: self.cpu)
        self.demand = 0.0
        self.claimed = 0

    @property
    def count(self) -> int:
        return len(self.chats)

    def look(self, waiting: int, ended: int = 0) -> None:
        """Let the time between two looks pass, in which some chats end, and then claim as many waiting chats as the
        gate allows."""
        streaming = sum(at <= self.time for at in self.chats)
        pause = self.pace.seconds(streaming)
        self.demand = streaming * 1e-6 * (US_READ * TOKENS_PER_SECOND + US_APPEND / pause)
        self.demand += self.claimed * BEGIN_SECONDS / LOOK_SECONDS
        self.time += LOOK_SECONDS
        self.cpu += LOOK_SECONDS * min(1.0, self.demand)
        del self.chats[:ended]
        lag = max(0.0, self.demand - 1) * pause  # the unfinished part of a round of appends when the next round is due
        self.gate.look(self.time, self.cpu, self.count, lag, 0.001)
        self.claimed = min(waiting, self.gate.room(self.count)) if self.gate.takes_new(self.count) else 0
        self.chats += [self.time + self.begin_seconds] * self.claimed


@pytest.mark.parametrize("begin_seconds", [0.25, 1.0, 3.0])
def test_a_worker_that_is_offered_more_than_it_can_bear_settles_and_does_not_oscillate(begin_seconds: float) -> None:
    worker = Worker(begin_seconds)
    counts = []
    for _ in range(1_200):  # five minutes; chats live for a minute
        worker.look(waiting=100_000, ended=worker.count // 240)
        counts.append(worker.count)
    settled = counts[400:]
    assert max(settled) - min(settled) < 0.1 * max(settled)
    assert 0.8 < worker.demand < 1.1
    assert max(counts) < 1.1 * max(settled), "no burst is claimed before its load shows"


def test_a_worker_with_time_takes_a_thousand_chats_within_seconds() -> None:
    worker = Worker()
    looks = 0
    while worker.count < 1_000:
        worker.look(waiting=1_000 - worker.count)
        looks += 1
    assert looks * LOOK_SECONDS < 8


def test_a_full_worker_opens_again_when_its_load_falls_a_little() -> None:
    gate = ClaimGate()
    loads = [0.5, *[0.2] * 12, *[0.097] * 12, *[0.08] * 12]  # lags of the loop in seconds
    seen = []
    for number, lag in enumerate(loads):
        gate.look(number * LOOK_SECONDS, 0.0, 500, lag, 0.0)
        seen.append(gate.is_full)
    assert seen[12] and seen[24], "just below the limit is not enough"
    assert not seen[-1]
    assert [a is not b for a, b in pairwise(seen)].count(True) <= 2


@pytest.mark.parametrize(("busy", "lag", "delay"), [(0.97, 0.0, 0.0), (0.1, 0.12, 0.0), (0.1, 0.0, 0.6)])
def test_each_of_loop_lag_and_store_alone_makes_a_worker_full(busy: float, lag: float, delay: float) -> None:
    gate = ClaimGate()
    for number in range(60):
        gate.look(number * LOOK_SECONDS, number * LOOK_SECONDS * busy, 500, lag, delay)
    assert gate.is_full and not gate.takes_new(CHATS_LEAST) and gate.takes_new(CHATS_LEAST - 1)


def test_one_blocked_callback_closes_the_gate_for_less_than_three_seconds() -> None:
    gate = ClaimGate()
    gate.look(0.0, 0.0, 500, 0.0, 0.0)
    gate.look(60.0, 60.0, 500, 59.75, 0.0)
    seconds = 0.0
    while gate.is_full:
        seconds += LOOK_SECONDS
        gate.look(60.0 + seconds, 60.0, 500, 0.0, 0.0)
    assert seconds < 3


def test_a_gate_that_was_never_looked_at_is_open() -> None:
    gate = ClaimGate()
    assert gate.takes_new(10_000) and gate.room(0) == STEP_COUNT


_looks = st.lists(
    st.tuples(st.floats(0.01, 20), st.floats(0, 4), st.integers(0, 3_000), st.floats(0, 60), st.floats(0, 60)),
    max_size=60,
)


@given(_looks, st.integers(0, 3_000))
def test_a_gate_never_starves_a_worker_and_never_floods_it(
    looks: list[tuple[float, float, int, float, float]], count: int
) -> None:
    gate = ClaimGate()
    now = cpu = 0.0
    chats = 0
    for elapsed, busy, chats, lag, delay in looks:
        now, cpu = now + elapsed, cpu + elapsed * busy
        was_full = gate.is_full
        gate.look(now, cpu, chats, lag, delay)
        assert 0 <= gate.load <= 2
        assert gate.is_full is (gate.load >= (OPEN_LOAD if was_full else 1.0))
    assert gate.takes_new(min(count, CHATS_LEAST - 1))
    assert 0 <= gate.room(count) <= STEP_COUNT + STEP_SHARE * chats
    assert gate.room(chats) >= STEP_COUNT // 10, "also a full worker takes the chats that nobody else took"
    assert gate.room(count + 1) <= gate.room(count)


@given(st.floats(0, 2), st.floats(0, 2), st.integers(0, 3_000))
def test_more_load_never_makes_more_room(one: float, other: float, count: int) -> None:
    less, more = ClaimGate(), ClaimGate()
    for gate, load in ((less, min(one, other)), (more, max(one, other))):
        for number in range(20):
            gate.look(number * LOOK_SECONDS, 0.0, count, 0.1 * load, 0.0)
    assert more.load >= less.load
    assert more.room(count) <= less.room(count)
    assert less.takes_new(count) or not more.takes_new(count)
