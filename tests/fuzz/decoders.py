"""A long run over all decoders, in processes of its own: `python -m tests.fuzz decoders --inputs 1000000`.

Every process works through its share of each target and says where it stands; one that stands too long at an input is
hung in C, where no exception reaches it, and is ended and reported with that input. It prints a table, then what broke,
each with the words that make it again.
"""

import multiprocessing as mp
import platform
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from typing import NamedTuple

from tests.fuzz import corpus
from tests.fuzz.run import Broken, Counts, input_of, minimised, peak_bytes, run_inputs, shares
from tests.fuzz.target import Target
from tests.fuzz.targets import all_targets

__all__ = ["Total", "report", "run_all"]

BATCH = 2_000
"""Inputs between two signs of life: a second or so."""

STUCK_SECONDS = 30.0
"""At one batch without an end, counted from its last input: far beyond any busy machine."""


class Total(NamedTuple):
    counts: dict[str, Counts]
    seconds: float
    peak_bytes: int

    @property
    def inputs(self) -> int:
        return sum(each.accepted + each.refused + len(each.broken) for each in self.counts.values())

    @property
    def broken(self) -> list[Broken]:
        return [broken for each in self.counts.values() for broken in each.broken]


class _Worker:
    """A process with its share of the batches: `number` of `count` takes every count-th."""

    def __init__(self, seed: int, batches: list[tuple[str, range]]) -> None:
        context = mp.get_context("fork" if sys.platform == "linux" else "spawn")
        self.hears, says = context.Pipe(duplex=False)
        self.at: Synchronized[int] = context.Value("q", -1)
        self.batch = ("", range(0))
        self.moved = (-1, time.monotonic())
        self._process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # every context has one
            target=_work, args=(seed, batches, says, self.at), daemon=True
        )
        self._process.start()
        says.close()

    def is_stuck(self) -> bool:
        if self.at.value != self.moved[0]:
            self.moved = (self.at.value, time.monotonic())
        return time.monotonic() - self.moved[1] > STUCK_SECONDS

    def status(self) -> int | None:
        self._process.join(STUCK_SECONDS)
        return self._process.exitcode

    def end(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join()


def _work(seed: int, batches: list[tuple[str, range]], says: Connection, at: "Synchronized[int]") -> None:
    targets = all_targets()
    place = at.get_obj() if hasattr(at, "get_obj") else at

    def begins(number: int) -> None:
        place.value = number

    for name, numbers in batches:
        says.send((name, numbers))
        says.send(run_inputs(seed, targets[name], numbers, begins))
    says.send(peak_bytes())


def _batches(targets: dict[str, Target], inputs: int) -> Iterator[tuple[str, range]]:
    for target, numbers in shares(targets, inputs):
        for start in range(0, len(numbers), BATCH):
            yield target.name, numbers[start : start + BATCH]


def run_all(seed: int, inputs: int, processes: int, only: list[str], *, is_talking: bool = True) -> Total:
    """At least so many inputs over all targets, or those named."""
    targets = {name: target for name, target in all_targets().items() if not only or name in only}
    batches = list(_batches(targets, inputs))
    began = time.monotonic()
    counts = {name: Counts(0, 0, 0.0, 0.0, []) for name in targets}
    peak = said = 0
    workers = [_Worker(seed, batches[number::processes]) for number in range(processes)]
    try:
        listening = {worker.hears: worker for worker in workers}
        while listening:
            for ready in wait(list(listening), timeout=1.0):
                assert isinstance(ready, Connection)
                worker = listening[ready]
                try:
                    heard = ready.recv()
                except EOFError:
                    del listening[ready]
                    if (status := worker.status()) != 0:
                        name, number = worker.batch[0], worker.at.value
                        data, _ = input_of(seed, targets[name], number)
                        died = Broken(name, number, data, f"the process ended with {status}")
                        counts[name] = _sum(counts[name], Counts(0, 0, 0.0, 0.0, [died]))
                    continue
                if isinstance(heard, Counts):
                    counts[worker.batch[0]] = _sum(counts[worker.batch[0]], heard)
                elif isinstance(heard, int):
                    peak = max(peak, heard)
                else:
                    worker.batch = heard
            for ready, worker in list(listening.items()):
                if worker.is_stuck():
                    worker.end()
                    del listening[ready]
                    name, number = worker.batch[0], worker.at.value
                    data, _ = input_of(seed, targets[name], number)
                    stuck = Broken(name, number, data, f"no end within {STUCK_SECONDS:g} s")
                    counts[name] = _sum(counts[name], Counts(0, 0, 0.0, STUCK_SECONDS, [stuck]))
            done = sum(each.accepted + each.refused for each in counts.values())
            if is_talking and done >= said + 50_000:
                said = done
                print(f"  {done:>9,} inputs, {done / (time.monotonic() - began):,.0f} a second", flush=True)
    finally:
        for worker in workers:
            worker.end()
    return Total(counts, time.monotonic() - began, peak)


def _sum(one: Counts, other: Counts) -> Counts:
    return Counts(
        one.accepted + other.accepted,
        one.refused + other.refused,
        one.seconds + other.seconds,
        max(one.slowest_seconds, other.slowest_seconds),
        one.broken + other.broken,
    )


def report(total: Total, seed: int) -> str:
    """The table, the figures and what broke, for people."""
    targets = all_targets()
    lines = [f"{'decoder':<22}{'inputs':>10}{'accepted':>10}{'refused':>10}{'a second':>10}{'slowest ms':>12}"]
    for name, each in total.counts.items():
        inputs = each.accepted + each.refused + len(each.broken)
        rate = inputs / each.seconds if each.seconds else 0
        lines.append(
            f"{name:<22}{inputs:>10,}{each.accepted:>10,}{each.refused:>10,}{rate:>10,.0f}"
            f"{each.slowest_seconds * 1000:>12.1f}"
        )
    lines += [
        "",
        f"{total.inputs:,} inputs in {total.seconds:.0f} s, {total.inputs / max(total.seconds, 0.001):,.0f} a second; "
        f"peak {total.peak_bytes >> 20} MiB; {len(total.broken)} broke their law",
        f"seed {seed}, corpus {corpus.fingerprint(target.corpus for target in targets.values())}, "
        f"Python {platform.python_version()}, msgspec {version('msgspec')}, {platform.machine()}",
    ]
    for broken in total.broken:
        lines += ["", *told(broken, seed)]
    return "\n".join(lines)


def told(broken: Broken, seed: int) -> list[str]:
    """What broke, the shortest input that does it, and how to see it again."""
    target = all_targets()[broken.target]
    data = broken.data if "no end" in broken.how or "process" in broken.how else minimised(target, broken, seed)
    return [
        f"{broken.target}: {broken.how}",
        f"  {data[:2_000]!r}" + (f" … {len(data)} bytes" if len(data) > 2_000 else ""),
        f"  again: python -m tests.fuzz replay {broken.target} {broken.number} --seed {seed}",
        "  keep it: an entry in tests/fuzz/found.json with this target, the input as Latin-1, and what it did",
    ]
