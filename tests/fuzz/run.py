"""Runs laws over inputs, by the hundred thousand: makes each input from three words, times it, and says which broke.

An input is `(seed, target, number)` and nothing else, so what broke is made again by `replay`, on any machine. It knows
no decoder and prints nothing; `decoders.py` spreads a run over processes and reports. The one rule: an input that
breaks its law never ends the run, since the next may break another.
"""

import json
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.fuzz.mutator import damaged, mutated
from tests.fuzz.target import Target

__all__ = [
    "FOUND",
    "HANG_SECONDS",
    "Broken",
    "Counts",
    "found_inputs",
    "input_of",
    "minimised",
    "run_inputs",
    "shares",
    "try_input",
]

HANG_SECONDS = 1.0
"""Of CPU for one input of at most 64 KiB: a server answers nobody else while it decodes."""

GROWTH_MAX_BYTES = 512 * 1024 * 1024
"""Of a process in a run. Inputs have 64 KiB and a decoder may make a hundred times that of one (a list of numbers), but
not keep it."""

BLOCK = 6
"""Inputs with one origin: enough to halve the time of a run, few enough that most of a corpus is met in CI's share."""

MINIMISE_TRIES = 2_000
BROKEN_KEPT = 3
"""Of one target: more of the same say nothing new, and minimising takes its time."""

FOUND = Path(__file__).parent / "found.json"
"""Inputs that once broke something, so that they never do again: `[{"target", "input" (Latin-1), "about"}]`."""


class Broken(NamedTuple):
    """A law that did not hold: for which input, and how."""

    target: str
    number: int
    data: bytes
    how: str


class Counts(NamedTuple):
    accepted: int
    refused: int
    seconds: float
    slowest_seconds: float
    broken: list[Broken]


class Inputs:
    """The inputs of one target. A block of neighbours has one origin, since changing JSON takes most of the time; the
    others of the block are that with a little more wrong with it."""

    def __init__(self, seed: int, target: Target) -> None:
        self._seed = seed
        self._target = target
        self._block = -1
        self._origin = b""

    def of(self, number: int) -> tuple[bytes, Random]:
        """The input, and random numbers for its law."""
        block, within = divmod(number, BLOCK)
        if block != self._block:
            random = Random(f"{self._seed}:{self._target.name}:{block}")
            self._block, self._origin = block, mutated(random, self._target.corpus)
        random = Random((self._seed << 40) ^ number)
        return (damaged(random, self._origin, self._target.corpus) if within else self._origin), random


def input_of(seed: int, target: Target, number: int) -> tuple[bytes, Random]:
    """One input alone, as a run makes it."""
    return Inputs(seed, target).of(number)


def try_input(target: Target, data: bytes, random: Random) -> tuple[bool, str]:
    """Accepted or not, and how the law was broken; '' when it was not."""
    began = time.thread_time()
    try:
        accepted = target.law(data, random)
    except (Exception, RecursionError) as wrong:  # the boundary of a law: whatever is raised breaks it
        return False, f"{type(wrong).__name__}: {wrong}"[:2_000]
    took = time.thread_time() - began
    return accepted, f"it took {took:.1f} s of CPU" if took > HANG_SECONDS else ""


def run_inputs(
    seed: int, target: Target, numbers: range, begins: Callable[[int], None] = lambda number: None
) -> Counts:
    """The inputs of these numbers; `begins` is told of each before it is tried."""
    accepted, slowest, broken = 0, 0.0, []
    began = time.perf_counter()
    held_bytes = peak_bytes()
    inputs = Inputs(seed, target)
    for number in numbers:
        begins(number)
        data, random = inputs.of(number)
        at = time.thread_time()
        is_accepted, how = try_input(target, data, random)
        slowest = max(slowest, time.thread_time() - at)
        accepted += is_accepted
        if how:
            broken.append(Broken(target.name, number, data, how))
            if len(broken) >= BROKEN_KEPT:
                break
    if (grown := peak_bytes() - held_bytes) > GROWTH_MAX_BYTES:
        broken.append(Broken(target.name, numbers.stop, b"", f"the process grew by {grown >> 20} MiB"))
    tried = numbers.index(number) + 1 if numbers else 0
    return Counts(accepted, tried - accepted - len(broken), time.perf_counter() - began, slowest, broken)


def peak_bytes() -> int:
    """The most that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def shares(targets: dict[str, Target], inputs: int) -> Iterator[tuple[Target, range]]:
    """Each target's numbers, by its weight; together at least `inputs`."""
    total = sum(target.weight for target in targets.values())
    for target in targets.values():
        yield target, range(-(-inputs * target.weight // total))


def minimised(target: Target, broken: Broken, seed: int) -> bytes:
    """A shorter input that breaks the law by the same kind of error: pieces are left out, ever smaller."""
    kind = broken.how.partition(":")[0]

    def still_breaks(data: bytes) -> bool:
        _, random = input_of(seed, target, broken.number)  # anew each time: a law takes numbers off
        return try_input(target, data, random)[1].partition(":")[0] == kind

    data, step, tries = broken.data, max(1, len(broken.data) // 2), 0
    while step and tries < MINIMISE_TRIES:
        at = 0
        while at < len(data) and tries < MINIMISE_TRIES:
            tries += 1
            shorter = data[:at] + data[at + step :]
            if still_breaks(shorter):
                data = shorter
            else:
                at += step
        step //= 2
    return data


def found_inputs() -> list[tuple[str, bytes, str]]:
    """What `found.json` holds: target, input, what it once did."""
    return [(each["target"], each["input"].encode("latin-1"), each["about"]) for each in json.loads(FOUND.read_text())]
