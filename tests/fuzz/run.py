"""Judges inputs by the law of a target; hypothesis makes the inputs from a corpus, shrinks and reports a broken law."""

import gc
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.mutator import mutated
from tests.fuzz.target import Target, held

__all__ = ["FOUND", "HANG_SECONDS", "SEED", "for_inputs", "found_inputs", "is_accepted"]

SEED = int(os.environ.get("FUZZ_SEED", "1"))
"""A suite should fail because of a change, not by chance, so it uses the same inputs unless FUZZ_SEED gives another
seed."""

HANG_SECONDS = 1.0
"""Seconds of CPU for one input of at most 64 KiB: a server answers no other request while it decodes."""

FOUND = Path(__file__).parent / "found.json"
"""Inputs that once broke a law: `[{"target", "input" (Latin-1), "about"}]`. Each is tried in every run."""


def is_accepted(target: Target, data: bytes, random: Random) -> bool:
    """Return whether the target accepts this input. An exception, or a second of CPU, breaks the law. The garbage
    collector is paused, since its time depends on what all tests before have left in memory."""
    gc.disable()
    try:
        began = time.thread_time()
        accepted = target.law(data, random)
        took = time.thread_time() - began
    finally:
        gc.enable()
    held(took <= HANG_SECONDS, f"it took {took:.1f} s of CPU")
    return accepted


def for_inputs(
    corpus: Sequence[bytes], count: int, check: Callable[[bytes, Random], None], found: Sequence[bytes] = ()
) -> None:
    """Call `check` with many inputs; if an input fails, raise the exception of the simplest such input.

    Args:
        corpus: Good inputs, which are then damaged in a few places.
        count: Number of inputs to make.
        check: Receives an input, and random numbers for other choices, such as the places where the input is cut.
        found: Inputs that are tried first, each with twenty different random numbers.
    """

    def checked(made: tuple[bytes, Random]) -> None:
        check(*made)

    for data in found:
        for number in range(20):
            checked = example((data, Random(number)))(checked)
    inputs = st.randoms(use_true_random=False).map(lambda random: (mutated(random, corpus), random))
    limits = settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    seed(SEED)(limits(given(inputs)(checked)))()


def found_inputs(target: str) -> list[bytes]:
    """Return the inputs of `found.json` for that target."""
    return [each["input"].encode("latin-1") for each in json.loads(FOUND.read_text()) if each["target"] == target]
