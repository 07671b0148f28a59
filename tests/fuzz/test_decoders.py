"""Every decoder keeps its law for the seed of this run, and for whatever once broke one.

The seed is 1 unless FUZZ_SEED says otherwise: a suite should fail for what was changed, not for what was drawn. Fresh
ones are for `python -m tests.fuzz decoders --inputs 1000000`; what it finds goes into `found.json`, after the mending.
"""

import os
import time
from random import Random

import pytest

from tests.fuzz.decoders import report, run_all
from tests.fuzz.run import HANG_SECONDS, Broken, found_inputs, input_of, minimised, run_inputs, shares, try_input
from tests.fuzz.target import Target, held
from tests.fuzz.targets import all_targets

INPUTS = int(os.environ.get("FUZZ_INPUTS", "100000"))
"""On two idle cores about ten seconds."""

SEED = int(os.environ.get("FUZZ_SEED", "1"))

ALONE = 1 if os.environ.get("PYTEST_XDIST_WORKER") else 2
"""Processes: beside other tests one is enough."""


@pytest.mark.slow(25)
def test_every_decoder_gives_a_value_or_its_own_error_whatever_it_is_given() -> None:
    total = run_all(SEED, INPUTS, ALONE, [], is_talking=False)
    assert total.inputs >= INPUTS
    assert not total.broken, report(total, SEED)


@pytest.mark.parametrize(("name", "data", "about"), found_inputs(), ids=lambda value: str(value)[:40])
def test_what_once_broke_a_decoder_does_no_more(name: str, data: bytes, about: str) -> None:
    for seed in range(20):  # the choices of a law, such as where bytes are cut
        _, how = try_input(all_targets()[name], data, Random(seed))
        assert not how, f"{about}: {how}"


def test_every_target_accepts_its_corpus_somewhere_and_refuses_something() -> None:
    """Else it would be a law that nothing can break."""
    for target in all_targets().values():
        accepted = [try_input(target, data, Random(seed)) for data in target.corpus for seed in range(4)]
        assert any(is_accepted for is_accepted, _ in accepted), target.name
        assert not [how for _, how in accepted if how], target.name
        assert run_inputs(SEED, target, range(600)).refused, target.name


def test_the_same_seed_gives_the_same_inputs_in_any_order() -> None:
    target = all_targets()["command"]
    forwards = [input_of(7, target, number)[0] for number in range(40)]
    backwards = [input_of(7, target, number)[0] for number in reversed(range(40))]
    assert forwards == backwards[::-1]
    assert forwards != [input_of(8, target, number)[0] for number in range(40)]
    assert sum(len(numbers) for _, numbers in shares(all_targets(), 10_000)) >= 10_000


def _breaks_at_x(data: bytes, random: Random) -> bool:
    held(b"x" not in data, "there is an x")
    return True


def test_a_broken_law_is_found_and_its_input_made_short() -> None:
    target = Target("broken", _breaks_at_x, (b'{"a":"bcdxefg"}',))
    broken = run_inputs(SEED, target, range(100)).broken
    assert broken and "there is an x" in broken[0].how
    assert minimised(target, broken[0], SEED) == b"x"


def _burns(data: bytes, random: Random) -> bool:
    until = time.thread_time() + 1.1 * HANG_SECONDS
    while time.thread_time() < until:
        pass
    return True


def test_an_input_that_takes_a_second_of_cpu_breaks_the_law() -> None:
    assert "of CPU" in try_input(Target("slow", _burns, (b"",)), b"", Random(0))[1]


def test_a_report_says_how_to_see_it_again() -> None:
    total = run_all(5, 100, 1, ["position"], is_talking=False)
    total.counts["position"].broken.append(Broken("position", 3, b"1-1-1", "AssertionError: no"))
    text = report(total, 5)
    assert "python -m tests.fuzz replay position 3 --seed 5" in text
    assert "1 broke their law" in text
