"""Thousands of seeded schedules keep every promise, replay exactly, reach rare states, and notice a missing rule."""

import os
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path

import pytest

from tests.sim.mutations import RULES
from tests.sim.rules import Rule
from tests.sim.search import Found, find_in_haste, pool, run_many, run_some
from tests.sim.tally import RARE

SEEDS = 9_000
"""The number of seeds in CI, 500 for each mix. `python -m tests.sim --seeds 20000` runs more."""

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workers() -> Iterator[Pool]:
    """Schedules run in separate processes that end with the test."""
    executor = pool(os.cpu_count() or 1)
    yield executor
    executor.close()
    executor.join()


@pytest.fixture(scope="module")
def found(workers: Pool) -> Found:
    """Return the results of all seeds."""
    sum_of_all = Found()
    for part in run_many(workers, 0, SEEDS):
        sum_of_all.add(part)
    return sum_of_all


@pytest.fixture(scope="module")
def without(workers: Pool) -> dict[str, AsyncResult[Found]]:
    """Return the findings of the search without each rule; the searches run at the same time."""
    return {rule.name: workers.apply_async(find_in_haste, (rule.name,)) for rule in RULES}


def history(seed: int, mix: str, hash_seed: str) -> bytes:
    """Replay a seed with the command that a person would run."""
    command = [sys.executable, "-m", "tests.sim", "--seed", str(seed), "--mix", mix, "--history"]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=True, timeout=60).stdout


def test_no_seed_loses_or_repeats_a_command_or_shows_what_never_was(found: Found) -> None:
    assert found.seeds == SEEDS
    assert found.failed == []


@pytest.mark.parametrize("state", RARE)
def test_the_seeds_reach_each_rare_state(found: Found, state: str) -> None:
    assert found.counts[state] > 0


def test_nothing_changes_where_a_log_is_read_in_many_pages() -> None:
    paged = run_some(range(1_000), page_bytes=300)
    assert paged.failed == []
    assert paged.counts["part of a log loaded"] > 100


@pytest.mark.parametrize("mix", ["crash", "failover", "slow", "agents"])
def test_a_seed_has_the_same_history_in_every_process(mix: str) -> None:
    first = history(7, mix, "1")
    assert first.count(b"\n") > 30
    assert history(7, mix, "2") == first


def test_a_failing_seed_ends_the_search_with_its_number_and_how_to_replay_it() -> None:
    command = [sys.executable, "-m", "tests.sim", "--rule", "nonce", "--seeds", "300", "--processes", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "python -m tests.sim --seed" in done.stdout
    assert "answered DUPLICATE" in done.stdout


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_that_is_switched_off_is_noticed(without: dict[str, AsyncResult[Found]], rule: Rule) -> None:
    found = without[rule.name].get(timeout=300)
    assert found.failed, f"{found.seeds} seeds saw nothing wrong without: {rule.name}"
