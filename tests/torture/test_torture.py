"""The real thing under torture, for as long as TORTURE_SECONDS says (60): every promise is kept.

`scripts/torture` is the same for any length. The numbers asked of the run here are far below what an idle machine does;
they only see to it that a run in which nothing happened is not taken for a good one.
"""

import asyncio
import os
import secrets
import shutil
from pathlib import Path

import pytest

from tests.torture.faults import KINDS, draw_schedule
from tests.torture.run import Options, torture

SECONDS = float(os.environ.get("TORTURE_SECONDS", "60"))
"""Shorter runs strike fewer kinds of faults; three minutes strike each kind several times."""

STORE = os.environ.get("TORTURE_STORE", "valkey")


@pytest.mark.slow
def test_no_command_is_lost_or_repeated_and_everybody_agrees_whatever_is_killed_stopped_or_cut(tmp_path: Path) -> None:
    options = Options(
        seed=os.environ.get("TORTURE_SEED", secrets.token_hex(4)),
        directory=tmp_path / "torture",
        store=STORE,
        seconds=SECONDS,
        chats=120,
        subscribers=80,
        real_clients=10,
        commands_per_second=60.0,
    )
    report = asyncio.run(torture(options, print, asyncio.Event()))
    print(report.text())
    assert report.is_good, report.text()
    assert report.faults_count >= SECONDS, "hardly a fault a second: the machine could not keep up"
    assert report.counts["accepted"] >= 5 * SECONDS, "hardly a command: the machine could not keep up"
    shutil.rmtree(options.directory)


def test_the_same_seed_draws_the_same_faults_and_a_long_run_draws_every_kind() -> None:
    drawn = draw_schedule("a", 180.0, 2.1)
    assert drawn == draw_schedule("a", 180.0, 2.1) != draw_schedule("b", 180.0, 2.1)
    assert {fault.kind for fault in drawn} == set(KINDS)
    assert 300 <= len(drawn) <= 650
    assert all(0 <= fault.at_seconds < 180.0 for fault in drawn)


def test_only_the_kinds_that_were_asked_for_are_drawn() -> None:
    assert {fault.kind for fault in draw_schedule("a", 60.0, 2.0, ["cut", "kill-store"])} == {"cut", "kill-store"}
