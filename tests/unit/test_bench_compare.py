"""Comparing two commits: the verdict about ratios, and a complete run over a small repository whose product uses CPU
time."""

import math
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench import compare
from bench.figures import Figure, Section
from bench.judge import Key, Verdict, judge, keyed, ratio_of, suspects

KEY: Key = ("row", "cost")


def a_figure(value: float, *, at_most: bool = True) -> Figure:
    return Figure("cost", "what it costs", value, "us", value, value, at_most=at_most)


def judged(ratios: Sequence[float], *, at_most: bool = True) -> Verdict:
    rounds = [
        ({KEY: a_figure(100, at_most=at_most)}, {KEY: a_figure(100 * ratio, at_most=at_most)}) for ratio in ratios
    ]
    (verdict,) = judge(rounds)
    return verdict


def test_worse_is_a_bad_median_on_which_nearly_all_pairs_agree() -> None:
    assert judged([1.2] * 10).says == "worse"
    assert judged([1.14] * 10).says == "as before"
    assert judged([1.3] * 9 + [0.9]).says == "worse", "one pair was disturbed"
    assert judged([1.3] * 8 + [0.9] * 2).says == "as before", "two of ten is noise"
    assert judged([1.3] * 4 + [1.0]).says == "as before", "of five, all must agree"
    assert judged([0.8] * 10).says == "better"


def test_where_more_is_better_less_is_worse() -> None:
    assert judged([0.8] * 10, at_most=False).says == "worse"
    assert judged([1.25] * 10, at_most=False).says == "better"
    assert ratio_of(a_figure(10, at_most=False), a_figure(5, at_most=False)) == 2


def test_whatever_has_a_bad_median_is_looked_at_again_even_when_pairs_disagree() -> None:
    assert suspects([judged([1.4, 1.4, 1.4, 0.8, 0.8])]) == {"row"}
    assert suspects([judged([1.1] * 5)]) == set()


def test_noise_alone_is_hardly_ever_called_worse_and_a_real_loss_hardly_ever_missed() -> None:
    """The measurements of a figure spread by 15 %, and one in ten by 30 %, as on a machine with disturbances."""
    chance = random.Random(6)

    def told(loss: float) -> bool:
        def measured() -> float:
            return math.exp(chance.gauss(0, 0.3 if chance.random() < 0.1 else 0.15))

        first = [loss * measured() / measured() for _ in range(5)]
        if not suspects([judged(first)]):
            return False
        return judged([*first, *(loss * measured() / measured() for _ in range(5))]).says == "worse"

    cries = sum(told(1.0) for _ in range(2_000))
    assert cries < 20, "1 % of such figures"
    found = sum(told(1.5) for _ in range(500))
    assert found > 450


def test_a_figure_of_one_commit_alone_or_of_nothing_is_not_judged() -> None:
    assert judge([({KEY: a_figure(1)}, {}), ({}, {KEY: a_figure(9)})]) == []
    assert judge([({KEY: a_figure(0)}, {KEY: a_figure(9)})]) == []
    rows = [Section("a", "", "", [a_figure(1)]), Section("b", "", "", [a_figure(2)])]
    assert {key: each.value for key, each in keyed(rows).items()} == {("a", "cost"): 1, ("b", "cost"): 2}


PROGRAM = """
import json, pathlib, sys
from threadcast import COST
if "lost" in sys.argv and COST > 100: raise SystemExit("\\x1b[Kno such product")
figure = {"key": "cost", "what": "what it costs", "value": COST * SCALE, "unit": "us", "least": 1, "greatest": 1}
report = {"taken_at": 0, "machine": {}, "sections": [
    {"row": sys.argv[1], "title": "", "command": "", "figures": [figure]}]}
pathlib.Path(sys.argv[-1]).write_text(json.dumps(report))
sys.exit(1)  # a bar was missed
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`cheap` costs 100; `dear` costs 130 and has programs that print twice as much."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "bench").mkdir()
    (tmp_path / "server/threadcast").mkdir(parents=True)
    (tmp_path / "bench/__init__.py").touch()
    _git("init", "--quiet")
    for tag, cost, scale in (("cheap", 100, 1), ("dear", 130, 2)):
        (tmp_path / "server/threadcast/__init__.py").write_text(f"COST = {cost}\n")
        (tmp_path / "bench/__main__.py").write_text(f"SCALE = {scale}\n{PROGRAM}")
        _git("add", "--all")
        _git("-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "--quiet", "--message", tag)
        _git("tag", tag)
    return tmp_path


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout


def test_both_products_are_measured_by_the_programs_of_the_new_commit(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main(["cheap", "dear", "--rounds", "1", "--rows", "start"]) == 1
    said = capsys.readouterr()
    assert "what it costs         200 ->        260 us      1.30 [1.30 .. 1.30] x2  WORSE" in said.out
    assert "measured again because they seem worse: start" in said.err
    assert compare.main(["dear", "cheap", "--rounds", "1", "--rows", "start"]) == 0
    assert "0.77 [0.77 .. 0.77] x1  better" in capsys.readouterr().out
    assert compare.main(["cheap", "--rounds", "1", "--rows", "start", "--own-bench"]) == 1
    assert "100 ->        260 us      2.60" in capsys.readouterr().out
    assert _git("worktree", "list").count("\n") == 1, "nothing is left behind"
    assert _git("status", "--short") == ""


def test_what_cannot_be_compared_is_said(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main(["cheap", "--rounds", "1", "--rows", "lost"]) == 2
    assert "not compared: lost: HEAD: no such product" in capsys.readouterr().out
    assert compare.main(["nowhere"]) == 2
    assert "invalid reference: nowhere" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        compare.main(["cheap", "--rounds", "0"])
