"""A fuzzed decoder: a name, good inputs to begin with, and the law that it must keep.

A law is a function that takes any bytes and returns whether the decoder accepted them; the documented error counts as a
refusal. Any other exception breaks the law; so does a second of CPU for one input (`run.py`), or memory that is not
freed (`test_decoders.py`).
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple, TypeAlias

__all__ = ["Law", "Target", "held"]

Law: TypeAlias = Callable[[bytes, Random], bool]
"""A law takes an input, and random numbers for its other choices, such as the places where the input is cut."""


class Target(NamedTuple):
    """`weight` is the target's share of a run: decoders of untrusted input get a larger share, slow decoders a smaller
    share."""

    name: str
    law: Law
    corpus: Sequence[bytes]
    weight: int = 4


def held(condition: object, *what: object) -> None:
    """Behave like `assert`, but also under `-O`, and report the difference.

    Raises:
        AssertionError: the law is broken.
    """
    if not condition:
        raise AssertionError("; ".join(f"{each!r:.300}" for each in what) or "the law is broken")
