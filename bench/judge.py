"""Decides whether figures of one commit are worse than those of another, from pairs that were measured one after the
other. Pure.

The ratio of a pair is above 1 if the newer commit is worse; noise that lasts longer than a pair cancels out. There are
two measurements, because noise makes one figure in some dozens seem worse. After the first measurement, every figure
with a bad median is a suspect. The second one measures only suspects, with as many pairs again. The verdict uses all
pairs together: the median is worse by `WORSE`, and at most one pair in ten disagrees. By chance, a suspect meets the
second condition in one of a hundred cases. A figure that only one of the commits has is reported and not judged.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from bench.figures import Figure, Section

__all__ = ["WORSE", "Key", "Verdict", "judge", "keyed", "ratio_of", "suspects"]

WORSE = 1.15
"""The median ratio from which a change counts as worse. A smaller loss needs no explanation."""

DISSENT = 0.1
"""The fraction of pairs that may disagree, because another program may disturb a pair."""

Key: TypeAlias = tuple[str, str]
"""Names a figure: the row of its section, and its key."""


class Verdict(NamedTuple):
    key: Key
    what: str
    unit: str
    old: float
    new: float
    ratio: float
    """The median ratio of the pairs; above 1 is worse for every figure."""
    least: float
    greatest: float
    pairs_count: int
    says: Literal["worse", "better", "as before"]


def keyed(sections: Sequence[Section]) -> dict[Key, Figure]:
    return {(section.row, each.key): each for section in sections for each in section.figures}


def ratio_of(old: Figure, new: Figure) -> float:
    """Return how many times worse the new value is. Returns NaN if one of the values is 0 or less."""
    if old.value <= 0 or new.value <= 0:
        return math.nan
    return new.value / old.value if new.at_most else old.value / new.value


def suspects(verdicts: Sequence[Verdict]) -> set[str]:
    """Return the rows with suspects, which are measured again."""
    return {verdict.key[0] for verdict in verdicts if verdict.ratio > WORSE}


def judge(rounds: Sequence[tuple[Mapping[Key, Figure], Mapping[Key, Figure]]]) -> list[Verdict]:
    """Return a verdict on each figure that both commits have. `rounds` are pairs (old, new), which may lack figures."""
    pairs: dict[Key, list[tuple[Figure, Figure]]] = {}
    for old, new in rounds:
        for key in old.keys() & new.keys():
            if not math.isnan(ratio_of(old[key], new[key])):
                pairs.setdefault(key, []).append((old[key], new[key]))
    return [_verdict(key, pairs[key]) for key in sorted(pairs)]


def _verdict(key: Key, pairs: Sequence[tuple[Figure, Figure]]) -> Verdict:
    ratios = [ratio_of(old, new) for old, new in pairs]
    median = statistics.median(ratios)
    says: Literal["worse", "better", "as before"] = "as before"
    if median > WORSE and _agree([ratio > 1 for ratio in ratios]):
        says = "worse"
    elif median < 1 / WORSE and _agree([ratio < 1 for ratio in ratios]):
        says = "better"
    return Verdict(
        key=key,
        what=pairs[-1][1].what,
        unit=pairs[-1][1].unit,
        old=statistics.median(old.value for old, _ in pairs),
        new=statistics.median(new.value for _, new in pairs),
        ratio=median,
        least=min(ratios),
        greatest=max(ratios),
        pairs_count=len(ratios),
        says=says,
    )


def _agree(votes: Sequence[bool]) -> bool:
    return votes.count(False) <= DISSENT * len(votes)
