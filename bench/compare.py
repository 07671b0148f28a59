"""`python -m bench.compare OLD [NEW]`: measures the small set of two commits in turn. Exits with 1 if NEW is 15 %
worse.

Both commits are checked out into a temporary directory, so the present tree is not changed and uncommitted changes are
not measured. The same programs measure both products: `bench/` and `tests/` of NEW are copied over OLD (with
`--own-bench` each commit uses its own). Each run is a separate process with the packages of its worktree first on
PYTHONPATH. The order alternates (old, new, new, old, ...), so that a machine that slows down slows both. A figure that
seems worse is measured again before it is reported (`judge.py`). A row that one of the commits cannot run is named and
not judged. Exit codes: 0 not worse, 1 worse, 2 no figure could be compared.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.__main__ import ROWS, Report
from bench.figures import Figure, progress
from bench.judge import Key, Verdict, judge, keyed, suspects

__all__ = ["main"]

ROUNDS = 5
"""The number of pairs in the first measurement, and in the second."""

ROW_SECONDS = 900.0
"""Time limit of one row of one commit. The small set of a row takes a few minutes at most."""

PRODUCT = "threadcast"
"""The package whose folder shows which code runs: the folder must be in the commit's worktree."""

SOURCES = ("", "protocol", "client", "server")
"""The folders of a worktree from which packages are imported, in the order of PYTHONPATH."""

PROGRAMS = ("bench", "tests")
"""The folders with the measuring programs: the rows, and the harness that starts processes for them."""


class Side(NamedTuple):
    """One of the two commits, checked out. `name` is the user's name of the commit."""

    name: str
    tree: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": os.pathsep.join(str(self.tree / folder) for folder in SOURCES)}


ATTACKS = {"bombs", "floods"}
"""Rows that have bars and nothing to compare: their figures are the worst moments of attacks, which vary."""


class NotMeasured(Exception):
    """A row could not be measured. The message is the end of its output."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("old", metavar="OLD", help="a commit, as git names it")
    parser.add_argument("new", metavar="NEW", nargs="?", default="HEAD", help="another one (HEAD)")
    parser.add_argument(
        "--rows", nargs="+", default=None, metavar="ROW", help="the rows to measure (all but those of attacks)"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"pairs in each measurement ({ROUNDS})")
    parser.add_argument("--own-bench", action="store_true", help="measure OLD with its own programs")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    try:
        with _checked_out(options.old, options.new, own_bench=options.own_bench) as (old, new):
            verdicts, missing = _compare(
                old, new, options.rows or [row for row in ROWS if row not in ATTACKS], options.rounds
            )
    except (subprocess.CalledProcessError, NotMeasured) as trouble:
        said = trouble.stderr if isinstance(trouble, subprocess.CalledProcessError) else str(trouble)
        print(f"python -m bench.compare: {str(said).strip()}", file=sys.stderr)
        return 2
    print(_table(verdicts, options.old, options.new))
    for row, why in missing.items():
        print(f"  not compared: {row}: {why}")
    if not verdicts:
        return 2
    return 1 if any(verdict.says == "worse" for verdict in verdicts) else 0


def _compare(old: Side, new: Side, rows: Sequence[str], rounds: int) -> tuple[list[Verdict], dict[str, str]]:
    """Measure the rows. Returns the verdict on every figure, and the reasons why rows were not measured."""
    missing: dict[str, str] = {}
    pairs = [_pair(old, new, rows, missing, number, f"round {number + 1} of {rounds}") for number in range(rounds)]
    verdicts = judge(pairs)
    again = [row for row in rows if row in suspects(verdicts)]
    if again:
        progress("")
        print(f"measured again because they seem worse: {', '.join(again)}", file=sys.stderr)
        pairs += [
            _pair(old, new, again, missing, number, f"again {number + 1} of {rounds}") for number in range(rounds)
        ]
        verdicts = judge(pairs)
    progress("")
    return verdicts, missing


def _pair(
    old: Side, new: Side, rows: Sequence[str], missing: dict[str, str], number: int, where: str
) -> tuple[dict[Key, Figure], dict[Key, Figure]]:
    """Measure each row of one commit and at once the same row of the other, so that the pair is as close in time as
    possible."""
    found: dict[Side, dict[Key, Figure]] = {old: {}, new: {}}
    for row in rows:
        for side in (old, new) if number % 2 == 0 else (new, old):
            if row in missing:
                continue
            progress(f"{where}: {row} of {side.name} ...")
            try:
                found[side] |= _measured(side, row)
            except NotMeasured as trouble:
                missing[row] = f"{side.name}: {trouble}"
    return found[old], found[new]


def _measured(side: Side, row: str) -> Mapping[Key, Figure]:
    """Measure one row in a separate process. Raises NotMeasured."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "figures.json"
        words = [sys.executable, "-m", "bench", row, "--small", "--json", str(file)]
        try:
            ran = subprocess.run(
                words, cwd=side.tree, env=side.environment, capture_output=True, text=True, timeout=ROW_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"not finished after {ROW_SECONDS:g} s") from None
        if not file.exists():  # the exit code 1 may also mean a missed bar, which does not matter here
            said = ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"]
            raise NotMeasured(said[-1].rpartition("\x1b[K")[2])
        return keyed(msgspec.json.decode(file.read_bytes(), type=Report).sections)


@contextmanager
def _checked_out(old: str, new: str, *, own_bench: bool) -> Iterator[tuple[Side, Side]]:
    """Check out both commits for a block. Raises CalledProcessError with git's message in `stderr`."""
    with tempfile.TemporaryDirectory(prefix="threadcast-compare-") as directory:
        sides = Side(old, Path(directory) / "old"), Side(new, Path(directory) / "new")
        try:
            for side in sides:
                _git(Path.cwd(), "worktree", "add", "--quiet", "--detach", str(side.tree), side.name)
            if not own_bench:
                commit = _git(sides[1].tree, "rev-parse", "HEAD")
                for name in PROGRAMS:
                    if (sides[1].tree / name).is_dir():
                        _git(sides[0].tree, "checkout", "--quiet", "--no-overlay", commit, "--", name)
            for side in sides:
                _check_whose_code_runs(side)
            yield sides
        finally:
            for side in sides:
                if side.tree.exists():
                    _git(Path.cwd(), "worktree", "remove", "--force", str(side.tree))


def _check_whose_code_runs(side: Side) -> None:
    """Raise NotMeasured if an installed copy would be measured instead of the commit."""
    code = f"import {PRODUCT}; print({PRODUCT}.__path__[0])"
    words = [sys.executable, "-c", code]
    ran = subprocess.run(words, cwd=side.tree, env=side.environment, capture_output=True, text=True)
    if not Path(ran.stdout.strip() or os.sep).resolve().is_relative_to(side.tree.resolve()):
        raise NotMeasured(f"{PRODUCT} comes from {ran.stdout.strip() or 'nowhere'}, not from the commit {side.name}")


def _git(where: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=where, capture_output=True, text=True, check=True).stdout.strip()


def _table(verdicts: Sequence[Verdict], old: str, new: str) -> str:
    """Return the lines of the report for a terminal, in each row the worst figure first."""
    width = max((len(verdict.what) for verdict in verdicts), default=0)
    lines = [f"{new} beside {old}: medians, and the ratios of the pairs (above 1: worse, below 1: better)"]
    row = ""
    for verdict in sorted(verdicts, key=lambda each: (each.key[0], -each.ratio)):
        if verdict.key[0] != row:
            row = verdict.key[0]
            lines.append(f"{row}:")
        told = {"worse": "WORSE", "better": "better", "as before": ""}[verdict.says]
        spread = f"{verdict.ratio:5.2f} [{verdict.least:.2f} .. {verdict.greatest:.2f}] x{verdict.pairs_count}"
        lines.append(
            f"  {verdict.what:{width}}  {verdict.old:10.4g} -> {verdict.new:10.4g} {verdict.unit:6} "
            f"{spread}  {told}".rstrip()
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
