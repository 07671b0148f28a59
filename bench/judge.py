"""Whether figures of one commit are worse than those of another, given pairs that were taken one after the other. Pure.

A pair is a ratio above 1 when the newer one is worse, so noise that outlasts a pair cancels out. Two looks, since a
machine's noise makes one figure in some dozens look worse by chance: the first suspects whatever has a bad median, and
wakes easily; the second measures suspects alone, as often again, and condemns on all pairs together: the median is
worse by `WORSE`, and at most one pair in ten says otherwise. By pure chance ten pairs do the latter once in a hundred
times, for figures that were suspected already. The rule: a figure that only one of the commits has is told, and never
judged.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from bench.figures import Figure, Section

__all__ = ["WORSE", "Key", "Verdict", "judge", "keyed", "ratio_of", "suspects"]

WORSE = 1.15
"""The median ratio from which a change is a loss: what one commit may cost without anybody having to explain it."""

DISSENT = 0.1
"""Share of pairs that may say otherwise: a process was disturbed."""

Key: TypeAlias = tuple[str, str]
"""The row of a section and the key of a figure in it."""


class Verdict(NamedTuple):
    key: Key
    what: str
    unit: str
    old: float
    new: float
    ratio: float
    """The median of the pairs; above 1 is worse, whichever direction is better for this figure."""
    least: float
    greatest: float
    pairs_count: int
    says: Literal["worse", "better", "as before"]


def keyed(sections: Sequence[Section]) -> dict[Key, Figure]:
    return {(section.row, each.key): each for section in sections for each in section.figures}


def ratio_of(old: Figure, new: Figure) -> float:
    """How many times worse the new one is. NaN when one of them is 0 or less, which no ratio can tell."""
    if old.value <= 0 or new.value <= 0:
        return math.nan
    return new.value / old.value if new.at_most else old.value / new.value


def suspects(verdicts: Sequence[Verdict]) -> set[str]:
    """Rows that deserve a second look."""
    return {verdict.key[0] for verdict in verdicts if verdict.ratio > WORSE}


def judge(rounds: Sequence[tuple[Mapping[Key, Figure], Mapping[Key, Figure]]]) -> list[Verdict]:
    """A verdict on each figure that both commits have, from rounds of (old, new). A round may lack figures."""
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
