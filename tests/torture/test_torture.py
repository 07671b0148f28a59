"""Real processes under torture keep every promise, for TORTURE_SECONDS (60).

`scripts/torture` makes the same run with any length. The required numbers are far below those of an idle machine; they
only ensure that a run in which nothing happened does not pass.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import ROOT
from tests.torture.__main__ import main
from tests.torture.faults import KINDS, draw_schedule
from tests.torture.run import CATCH_UP_SECONDS, SETTLE_SECONDS

SECONDS = float(os.environ.get("TORTURE_SECONDS", "60"))
"""Shorter runs strike fewer kinds of faults; three minutes strike each kind several times."""

STORE = os.environ.get("TORTURE_STORE", "valkey")
SEED = os.environ.get("TORTURE_SEED", "")
"""If it is unset, the run draws a new seed, which the report names."""

SIZE = (
    "--chats", "120", "--subscribers", "60", "--real-clients", "10", "--mortals", "12", "--tabs", "10",
    "--commands-per-second", "60",
)  # fmt: skip
"""The load is half of the default load of `scripts/torture`, because tests share their machine."""

START_SECONDS = 120.0
"""Seconds for the start before the faults, and for the verdict."""

FAULTS_PER_SECOND_MIN = 0.5
"""Two faults a second are drawn; a fault whose target is already down is skipped."""

ACCEPTED_PER_SECOND_MIN = 2.0
"""The run requests sixty commands a second, but clients wait for their answers and other processes share the
machine."""


@pytest.mark.slow(SECONDS + 60)
def test_no_command_is_lost_or_repeated_and_everybody_agrees_whatever_is_killed_stopped_or_cut(tmp_path: Path) -> None:
    kept, told = tmp_path / "kept", tmp_path / "report.json"
    arguments = ["--seconds", str(SECONDS), "--store", STORE, *SIZE, "--keep", str(kept), "--report", str(told)]
    if SEED:
        arguments += ["--seed", SEED]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.torture", *arguments],
        cwd=ROOT,
        timeout=SECONDS + SETTLE_SECONDS + CATCH_UP_SECONDS + START_SECONDS,
        capture_output=True,
        text=True,
    )
    violations = ended.stdout.partition("  violations:")[2]  # first, because long messages are cut in their middle
    assert ended.returncode == 0, f"violations: {violations}\n{ended.stdout}{ended.stderr}"
    report = json.loads(told.read_bytes())
    print(ended.stdout)
    assert report["is_good"]
    assert report["faults_count"] >= FAULTS_PER_SECOND_MIN * SECONDS, "hardly a fault: the machine could not keep up"
    accepted_min = ACCEPTED_PER_SECOND_MIN * SECONDS
    assert report["counts"]["accepted"] >= accepted_min, "hardly a command: the machine could not keep up"
    assert not any(kept.iterdir()), "what was good leaves nothing behind"


def test_a_fault_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--faults", "cut", "flood"]) == 2
    assert "no fault called flood" in capsys.readouterr().err


def test_the_same_seed_draws_the_same_faults_and_a_long_run_draws_every_kind() -> None:
    drawn = draw_schedule("a", 180.0, 2.1)
    assert drawn == draw_schedule("a", 180.0, 2.1) != draw_schedule("b", 180.0, 2.1)
    assert {fault.kind for fault in drawn} == set(KINDS)
    assert 300 <= len(drawn) <= 650
    assert all(0 <= fault.at_seconds < 180.0 for fault in drawn)


def test_only_the_kinds_that_were_asked_for_are_drawn() -> None:
    assert {fault.kind for fault in draw_schedule("a", 60.0, 2.0, ["cut", "kill-store"])} == {"cut", "kill-store"}
