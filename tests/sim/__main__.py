"""`python -m tests.sim`: runs many seeds, or one seed with its history, or searches without each safety rule.

- `--seeds 20000` runs many seeds over all processors; the exit status is 1 if a seed fails.
- `--seed 1234 --history` runs one seed, and prints its history in virtual milliseconds.
- `--mutations` switches each rule off, and prints how many seeds it takes to notice the missing rule, and by which
  failure.
"""

import argparse
import os
import sys
import time

from tests.sim.clock import installed
from tests.sim.mutations import RULES
from tests.sim.plan import MIXES
from tests.sim.rules import Rule, switched_off
from tests.sim.search import Found, find, pool, run_many, run_one
from tests.sim.tally import RARE


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2_000, metavar="N", help="how many seeds (default: 2000)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them (default: 0)")
    parser.add_argument("--seed", type=int, metavar="SEED", help="run this one alone")
    parser.add_argument("--history", action="store_true", help="with --seed: print what happened")
    parser.add_argument("--mix", choices=sorted(MIXES), help="this weather for every seed")
    parser.add_argument(
        "--rule",
        metavar="NAME",
        choices=[rule.name for rule in RULES],
        help="switch this safety rule off; a wrong name lists them",
    )
    parser.add_argument("--mutations", action="store_true", help="switch off one rule after the other")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    asked = parser.parse_args()
    rule = next((rule for rule in RULES if rule.name == asked.rule), None)
    if asked.mutations:
        return _mutations(asked.processes)
    if asked.seed is not None:
        return _one(asked.seed, asked.mix, asked.history, rule)
    return _many(asked.first, asked.seeds, asked.mix, asked.processes, asked.rule or "")


def _one(seed: int, mix: str | None, with_history: bool, rule: Rule | None) -> int:
    with installed(), switched_off(rule):
        world = run_one(seed, mix, with_history=with_history)
    for line in [*world.plan.lines(), *world.lines, *(f"FAILED: {each}" for each in world.failures)]:
        print(line)
    if not world.failures:
        print(f"seed {seed}: well, {world.loop.now:.2f} virtual seconds, {world.loop.steps} steps")
    sys.stdout.flush()
    os._exit(1 if world.failures else 0)  # frozen tasks are never resumed


def _many(first: int, count: int, mix: str | None, processes: int, rule: str) -> int:
    begun = time.monotonic()
    found = Found()
    more = (f" --mix {mix}" if mix else "") + (f' --rule "{rule}"' if rule else "")
    with pool(processes) as workers:
        for part in run_many(workers, first, count, mix, rule):
            found.add(part)
            for seed, sentences in part.failed:
                print(f"seed {seed} failed: {sentences[0]}\n  python -m tests.sim --seed {seed}{more} --history")
    elapsed = time.monotonic() - begun
    for name in sorted(set(found.counts) | set(RARE)):
        print(f"{found.counts[name]:10d}  {name}")
    print(
        f"{found.seeds} seeds, {len(found.failed)} failed, {elapsed:.1f} s of {processes} processes, "
        f"{1000 * found.seconds / max(1, found.seeds):.2f} ms of processor time each"
    )
    return 1 if found.failed else 0


def _mutations(processes: int) -> int:
    """Print the table; exit status 1 if a rule can be switched off without being noticed."""
    missed = 0
    print(f"{'rule switched off':44} {'weather':9} {'seeds':>6}  what was seen")
    with pool(processes) as workers:
        for rule, found in zip(RULES, workers.imap(find, [rule.name for rule in RULES]), strict=True):
            missed += not found.failed
            seen = found.failed[0][1][0] if found.failed else "NOTHING"
            print(f"{rule.name:44} {rule.mix:9} {found.seeds:6}  {seen[:140]}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
