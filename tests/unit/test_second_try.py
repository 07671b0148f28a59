"""A test that passes only at its second try is named as a defect; two such tests fail the run."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.server import ROOT

SECONDS = 120
"""Two runs of pytest with a handful of empty tests: two seconds on a quiet machine."""

FLAKY = """
def test_flaky_{number}():
    tried = pathlib.Path("tried-{number}")
    if not tried.exists():
        tried.touch()
        raise AssertionError
"""

BROKEN = """
def test_broken_{number}():
    raise AssertionError
"""

GOOD = """
def test_good():
    pathlib.Path("runs-of-good").open("a").write("x")
"""


def lines_of(directory: Path, *tests: str) -> tuple[int, list[str]]:
    """Return the exit status and the output lines of a suite of these tests."""
    text = "".join(test.format(number=number) for number, test in enumerate(tests))
    (directory / "test_them.py").write_text(f"import pathlib\n{GOOD}{text}")
    (directory / "pytest.ini").write_text("[pytest]\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.second_try", "-q"],
        cwd=directory,
        env={**clean, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )
    return ran.returncode, ran.stdout.splitlines()


def defect(number: int) -> str:
    return f"DEFECT: test_them.py::test_flaky_{number} passes only at its second try"


def test_one_that_passes_at_its_second_try_is_named_in_the_last_line_and_forgiven(tmp_path: Path) -> None:
    status, lines = lines_of(tmp_path, FLAKY)
    assert (status, lines[-1]) == (0, defect(0))
    assert (tmp_path / "runs-of-good").read_text() == "x", "what passed is not run again"


def test_two_that_pass_at_their_second_try_are_named_and_fail_the_run(tmp_path: Path) -> None:
    status, lines = lines_of(tmp_path, FLAKY, FLAKY)
    assert status == 1
    assert lines[-3:-1] == [defect(0), defect(1)]


def test_one_that_fails_twice_fails_the_run_and_is_told_from_one_that_does_not(tmp_path: Path) -> None:
    status, lines = lines_of(tmp_path, FLAKY, BROKEN)
    assert status == 1
    assert [line for line in lines if line.startswith("DEFECT")] == [defect(0)]


def test_more_than_three_failures_are_not_tried_again(tmp_path: Path) -> None:
    status, lines = lines_of(tmp_path, *[FLAKY] * 4)
    assert status == 1
    assert lines[-1] == "4 tests failed; more than 3 are not tried again"


def test_what_passes_at_once_is_run_once(tmp_path: Path) -> None:
    status, lines = lines_of(tmp_path)
    assert status == 0
    assert lines[-1].startswith("1 passed")
