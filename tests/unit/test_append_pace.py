"""The pause between appends follows the load of the process: short while it is idle, longer while it is busy."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast.base.append_pace import (
    BUSY_SHARE,
    FULL_SHARE,
    FULL_STORE_DELAY_SECONDS,
    LOOK_SECONDS,
    PACE_FULL_MAX_SECONDS,
    PACE_MAX_SECONDS,
    PACE_SECONDS,
    STORE_DELAY_SECONDS,
    AppendPace,
)

MANY = 5_000


class Machine:
    """A process whose time and CPU time the test advances. `share` returns its busy share at a given pause."""

    def __init__(self, share: Callable[[float], float], delay_seconds: float = 0.0) -> None:
        self.time = self.cpu = 100.0
        self.share = share
        self.delay_seconds = delay_seconds
        self.pace = AppendPace(lambda: self.time, lambda: self.cpu)

    def look(self, answers_count: int = MANY) -> float:
        """Let one interval pass, and return the pause after it."""
        self.time += LOOK_SECONDS
        self.cpu += LOOK_SECONDS * self.share(self.pace.seconds(answers_count))
        self.pace.note_store_delay(self.delay_seconds)
        return self.pace.seconds(answers_count)


def test_an_idle_process_makes_no_reader_wait_however_many_answers_it_has() -> None:
    machine = Machine(lambda _: 0.3)
    assert {machine.look() for _ in range(40)} == {PACE_SECONDS}


@pytest.mark.parametrize(("fixed", "per_append"), [(0.3, 0.015), (0.1, 0.03), (0.5, 0.01)])
def test_a_busy_process_settles_at_its_share_without_overshoot(fixed: float, per_append: float) -> None:
    def share(pause: float) -> float:
        return min(1.0, fixed + per_append / pause)  # the cost of reads, and the cost of each append

    machine = Machine(share)
    pauses = [machine.look() for _ in range(60)]
    assert share(pauses[-1]) == pytest.approx(BUSY_SHARE, abs=0.02)
    assert all(after >= before - 1e-9 for before, after in pairwise(pauses))
    machine.share = lambda _: 0.2  # the answers have ended
    pauses = [machine.look() for _ in range(60)]
    assert pauses[-1] == PACE_SECONDS and pauses == sorted(pauses, reverse=True)


def test_a_slow_store_makes_the_pause_longer_too() -> None:
    machine = Machine(lambda _: 0.1, delay_seconds=3 * STORE_DELAY_SECONDS)
    assert [machine.look() for _ in range(40)][-1] == PACE_MAX_SECONDS
    machine.delay_seconds = 2 * FULL_STORE_DELAY_SECONDS
    assert [machine.look() for _ in range(40)][-1] == PACE_FULL_MAX_SECONDS
    machine.delay_seconds = 0.001
    pauses = [machine.look() for _ in range(40)]
    assert pauses[-1] == PACE_SECONDS and pauses == sorted(pauses, reverse=True)


@pytest.mark.parametrize("share", [BUSY_SHARE + 0.01, FULL_SHARE - 0.01])
def test_between_the_targets_the_pause_stays_at_seven_updates_a_second(share: float) -> None:
    machine = Machine(lambda _: share)
    assert [machine.look() for _ in range(400)][-1] == PACE_MAX_SECONDS


def test_a_full_process_makes_its_pause_longer_until_it_has_time() -> None:
    machine = Machine(lambda pause: min(1.0, 0.18 / pause))  # 1.2 cores at 150 ms
    pauses = [machine.look() for _ in range(80)]
    assert 0.18 / pauses[-1] == pytest.approx(FULL_SHARE, abs=0.01)
    assert all(after >= before - 1e-9 for before, after in pairwise(pauses))


def test_few_answers_never_wait_longer_than_their_number_is_worth() -> None:
    machine = Machine(lambda _: 1.0)
    for _ in range(40):
        machine.look()
    assert [round(1_000 * machine.pace.seconds(count)) for count in (0, 1, 40, 99, 200, 334)] == [
        30,
        30,
        30,
        74,
        150,
        250,
    ]


@given(st.lists(st.tuples(st.floats(0, 4), st.floats(0, 60)), max_size=60))
def test_the_pause_stays_within_its_bounds(loads: list[tuple[float, float]]) -> None:
    machine = Machine(lambda _: 0.0)
    for busy, machine.delay_seconds in loads:
        machine.share = lambda _, busy=busy: busy  # type: ignore[misc]
        assert PACE_SECONDS <= machine.look() <= PACE_FULL_MAX_SECONDS
