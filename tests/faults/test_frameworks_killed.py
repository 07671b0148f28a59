"""Kills the owner of a run of each framework by kill -9 at two moments that are drawn from the commit's hash; `python
-m tests.faults.frameworks` plays more such kills."""

import random
from pathlib import Path

import pytest

from tests.faults.durable.__main__ import summary
from tests.faults.frameworks.__main__ import FRAMEWORKS, run
from tests.faults.frameworks.story import PHASES
from tests.faults.test_durable_kills import drawn

pytestmark = [pytest.mark.anyio, pytest.mark.slow(150)]

KILLS = 2

ROWS = {"pydantic_ai": "AGT-6", "langgraph": "AGT-7", "openai_agents": "AGT-8", "acp": "AGT-9", "ag_ui": "AGT-10"}


@pytest.mark.parametrize(
    "framework", [pytest.param(name, marks=pytest.mark.row(ROWS[name])) for name in FRAMEWORKS if name in ROWS]
)
async def test_a_run_of_the_framework_survives_kill_9_at_two_moments(framework: str, tmp_path: Path) -> None:
    seed = drawn()
    moments = random.Random(f"{seed} {framework}").sample(list(PHASES), KILLS)
    stories = await run(framework, KILLS, seed, tmp_path, moments)
    print(summary(stories))
    broken = [f"{story.phase}: {each}" for story in stories for each in story.violations]
    assert not broken, f"seed {seed}: {broken}"
    assert sum(len(story.kills) for story in stories) >= KILLS
