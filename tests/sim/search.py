"""Runs seeds: one with its history, or thousands over the processors, and reports the findings.

The frozen and dead tasks of a schedule are neither run again nor destroyed: they stay in memory until their Python
process ends, after some hundreds of seeds. Therefore seeds run only in child processes, which exit by `os._exit`.
"""

import atexit
import gc
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.pool import Pool

from tests.sim.clock import installed
from tests.sim.mutations import RULES
from tests.sim.plan import plan_of
from tests.sim.rules import Rule, switched_off
from tests.sim.tally import COUNTS
from tests.sim.world import World
from threadcast.store.bounds import LOG_PAGE_BYTES

__all__ = ["Found", "find", "find_in_haste", "pool", "run_many", "run_one", "run_some"]

SEEDS_PER_TASK = 50
TASKS_PER_PROCESS = 20
"""A Python process ends after 1,000 seeds, whose remaining tasks then take about 200 MB."""

_KEPT: list[World] = []


@dataclass
class Found:
    """The results of several seeds. `failed` holds each failed seed with sentences about its failures."""

    seeds: int = 0
    seconds: float = 0.0
    failed: list[tuple[int, list[str]]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Found") -> None:
        self.seeds += other.seeds
        self.seconds += other.seconds
        self.failed += other.failed
        self.counts += other.counts


def run_one(
    seed: int, mix: str | None = None, *, with_history: bool = False, page_bytes: int = LOG_PAGE_BYTES
) -> World:
    """Run one schedule, in this process. The simulation must be installed."""
    world = World(plan_of(seed, mix), with_history=with_history, page_bytes=page_bytes)
    world.run()
    for task in world.loop.tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # they are left where they are
    _KEPT.append(world)
    return world


def run_some(
    seeds: Iterable[int],
    mix: str | None = None,
    *,
    rule: Rule | None = None,
    stop_at_first: bool = False,
    page_bytes: int = LOG_PAGE_BYTES,
) -> Found:
    """Run these seeds, one after the other, in this process, with `rule` switched off. Logs are read in pages of
    `page_bytes` bytes."""
    found = Found()
    begun = time.process_time()
    with installed(), switched_off(rule), _without_gc():
        COUNTS.clear()
        for seed in seeds:
            world = run_one(seed, mix, page_bytes=page_bytes)
            found.seeds += 1
            if world.failures:
                found.failed.append((seed, world.failures))
                if stop_at_first:
                    break
        found.counts = Counter(COUNTS)
    found.seconds = time.process_time() - begun
    return found


@contextmanager
def _without_gc() -> Iterator[None]:
    """Run a block without garbage collection: the moment of a collection depends on the machine, and finalizers run
    code. Existing objects are never collected; the process ends after its seeds."""
    gc.disable()
    yield
    gc.freeze()


def _task(asked: tuple[int, int, str | None, str]) -> Found:
    first, count, mix, rule = asked
    return run_some(range(first, first + count), mix, rule=next((each for each in RULES if each.name == rule), None))


def find(rule_name: str, *, in_haste: bool = False) -> Found:
    """Run seeds of the rule's mix until a seed fails; this seed is the last in `failed`."""
    rule = next(rule for rule in RULES if rule.name == rule_name)
    first = rule.near if in_haste else 0
    return run_some(range(first, first + rule.within), rule.mix, rule=rule, stop_at_first=True)


def find_in_haste(rule_name: str) -> Found:
    return find(rule_name, in_haste=True)


def pool(processes: int) -> Pool:
    """Yield a pool of Python processes that end after a few pieces of work."""
    context = get_context("forkserver")  # modules are loaded once for all processes
    context.set_forkserver_preload([__name__])
    return context.Pool(processes, _leave_at_once, maxtasksperchild=TASKS_PER_PROCESS)


def _leave_at_once() -> None:
    """Exit at once: an ending interpreter would destroy frozen tasks, and so run their `finally` blocks without a
    loop."""
    atexit.register(os._exit, 0)


def run_many(workers: Pool, first: int, count: int, mix: str | None = None, rule: str = "") -> Iterator[Found]:
    """Run the seeds from `first` on, in pieces, in order; `rule` is the name of a rule that is switched off."""
    end = first + count
    pieces = [(start, min(SEEDS_PER_TASK, end - start), mix, rule) for start in range(first, end, SEEDS_PER_TASK)]
    yield from workers.imap(_task, pieces)
