"""Kills the owner of a durable run by kill -9 at four moments that are drawn from the commit's hash; `python -m
tests.faults.durable` plays more such kills."""

import random
import subprocess
from pathlib import Path

import pytest

from tests.faults.durable.__main__ import run, summary
from tests.faults.durable.story import PHASES
from tests.support.server import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.slow(120), pytest.mark.row("AGT-2", "AGT-3")]

KILLS = 4


def drawn() -> str:
    """Return a seed that depends on the commit, so that the moments are random and repeatable."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        return found.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no commit"


async def test_a_durable_run_survives_kill_9_at_four_moments(tmp_path: Path) -> None:
    seed = drawn()
    moments = random.Random(seed).sample(list(PHASES), KILLS)
    stories = await run(KILLS, seed, tmp_path, moments)
    print(summary(stories))
    broken = [f"{story.phase}: {each}" for story in stories for each in story.violations]
    assert not broken, f"seed {seed}: {broken}"
    assert sum(len(story.kills) for story in stories) >= KILLS
