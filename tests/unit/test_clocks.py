"""Monotonic clocks start near zero, so no code uses a constant as a moment of such a clock, and everything works just
after a boot."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clocks import constant_moments
from tests.support.server import ROOT
from tests.young import command_on_young_clock, why_not

PYTHON_ROOMS = ("server", "protocol", "threadcast", "examples", "bench", "tests")

SCRIPT_ROOMS = ("web/app", "web/client", "examples", "tests")

SCRIPTS = frozenset({".ts", ".tsx", ".js", ".cjs"})

NOT_OURS = frozenset({"node_modules", "dist", "build"})
"""Directories of installed or built files."""

ON_A_YOUNG_CLOCK = [
    "tests/unit/test_writer.py",
    "tests/unit/test_append_group.py",
    "tests/integration/test_first_path.py",
]
"""Tests that run on a young clock: the file whose test once hung on machines that had just booted, a similar file, and
whole processes on uvloop."""

YOUNG_SECONDS = 300
"""Maximum seconds; these tests take about 5 s on a quiet machine."""

NOW = re.compile(r"\bnow\(\)\s*[-<>]=?\s*(?:this\.)?(\w+)|(?:this\.)?(\w+) = [^=;]*\bnow\(\)")
"""Matches the names that TypeScript compares with a clock, subtracts from a clock, or sets to its value."""


@pytest.mark.parametrize("room", PYTHON_ROOMS)
def test_no_constant_is_taken_for_a_moment(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{place}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for place in constant_moments(path.read_text())
    ]
    assert not found, "never is None or minus infinity:\n" + "\n".join(found)


def zero_moments(source: str) -> list[str]:
    """Return the names in a TypeScript file that hold moments and are set to 0."""
    moments = {name for pair in NOW.findall(source) for name in pair if name}
    return sorted(name for name in moments if re.search(rf"\b{name}\b(?:: number)? = 0\b(?!\.)", source))


def test_no_zero_is_taken_for_a_moment_in_typescript() -> None:
    found_in = [path for room in SCRIPT_ROOMS for path in sorted((ROOT / room).rglob("*.*"))]
    sources = [path for path in found_in if path.suffix in SCRIPTS and not NOT_OURS & set(path.parts)]
    assert len(sources) > 50
    found = {str(path.relative_to(ROOT)): names for path in sources if (names := zero_moments(path.read_text()))}
    assert not found, "never is null or -Infinity"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("last_at = 0.0", 1),
        ("class A:\n    used_since: float = 0.0", 1),
        ("def f(told_at: float = 0.0): ...", 1),
        ("def f(*, told_at: float = 0.0): ...", 1),
        ("A(used_at=0.0)", 1),
        ("seen = -1\nif time.monotonic() > seen: ...", 1),
        ("a.seen = 0\na.seen = loop.time()", 1),
        ("a.seen = 0 if b else loop.time()\nc = loop.time() - a.seen", 1),
        ("now = anyio.current_time()\nif now > 5: ...", 1),
        ("if time.monotonic() > PAUSE_SECONDS: ...", 1),
        ("from time import perf_counter as clock\nif clock() < 7: ...", 1),
        ("clock = loop.time\nif clock() < 7: ...", 1),
        ("d[k] = loop.time()\nif d.get(k, 0.0) + PAUSE_SECONDS > loop.time(): ...", 1),
        ("word, until = d.get(k, ('', 0.0))\nif until <= time.monotonic(): ...", 1),
        ("last_at = -math.inf", 0),
        ("last_at: float | None = None\nif loop.time() - last_at > 5: ...", 0),
        ("a.seen = float('-inf')\nif loop.time() - a.seen > PAUSE_SECONDS: ...", 0),
        ("began = time.monotonic()\npassed = time.monotonic() - began\nif passed > 5.0: ...", 0),
        ("a.seen = loop.time() - 5.0", 0),
        ("if time.time() - created > 5: ...", 0),
        ("created_at_ms: int = 0", 0),
        ("def f():\n    seen = 0\ndef g():\n    seen = loop.time()", 0),
    ],
)
def test_the_search_knows_a_moment_from_a_duration(source: str, count: int) -> None:
    assert len(constant_moments(source)) == count


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("let toldAt = 0;\nif (performance.now() - toldAt < 5) {}", ["toldAt"]),
        ("private until: number = 0;\nx() { this.until = now() + wait; }", ["until"]),
        ("let toldAt = -Infinity;\nif (performance.now() - toldAt < 5) {}", []),
        ("let count = 0;\nconst at = performance.now();", []),
    ],
)
def test_the_search_of_typescript_knows_a_moment(source: str, names: list[str]) -> None:
    assert zero_moments(source) == names


def test_on_a_machine_that_has_just_booted_tests_pass_as_on_any_other(tmp_path: Path) -> None:
    if why := why_not():
        pytest.skip(f"this machine makes no young clocks: {why}")
    clock = subprocess.run(
        command_on_young_clock([sys.executable, "-c", "import time; print(time.monotonic())"]),
        check=True, capture_output=True,
    )  # fmt: skip
    assert float(clock.stdout) < 60, "the clock is not young"
    options = ["-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'young'}"]
    young = subprocess.run(
        command_on_young_clock([sys.executable, "-m", "pytest", *options, *ON_A_YOUNG_CLOCK]),
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=YOUNG_SECONDS,
    )
    assert young.returncode == 0, young.stdout
