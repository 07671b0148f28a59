"""kill -9 of the owner of a durable run at random moments: `python -m tests.faults.durable --kills 60 --seed N`.

Real web and worker processes over a real store, two clients, a person who answers, and a file that counts effects.
Progress goes to stderr, the summary to stdout. Exit code 1: a run broke a rule. The same seed draws the same moments.
"""

import argparse
import asyncio
import random
import secrets
import statistics
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.faults.durable.story import PHASES, Story, bound_seconds, play
from tests.support.fleet import FAST, Fleet, running_fleet
from tests.support.store import running_store
from threadcast.store.embedded.embedded import PERSISTENT

__all__ = ["main", "run"]

APP = Path(__file__).parent / "app.py"
STORE_EVERY, TWICE_EVERY = 12, 6
"""Every twelfth fault kills the store, and every sixth kills the owner twice in a row."""


async def run(kills: int, seed: str, directory: Path, phases: list[str] | None = None) -> list[Story]:
    """Play this many runs with a kill each, and one run without a kill."""
    chance = random.Random(seed)
    stories: list[Story] = []
    with ExitStack() as stack:
        store = stack.enter_context(running_store(directory / "store", PERSISTENT))
        fleet: Fleet = stack.enter_context(running_fleet(directory, store.url, "--app", str(APP), limits=FAST))
        fleet.store = store
        await fleet.open()
        order = phases or list(PHASES)
        for number in range(kills + 1):
            if number % len(order) == 0:
                chance.shuffle(order)
            faults = "none" if number == 0 else "one"
            if number and number % STORE_EVERY == 0:
                faults = "store"
            elif number and number % TWICE_EVERY == TWICE_EVERY // 2:
                faults = "two"
            story = await play(fleet, f"run-{number}", chance, order[number % len(order)], faults)
            bound = bound_seconds()
            late = [gap for gap in story.takeover_seconds if gap > bound] if faults == "one" else []
            if late and story.phase not in ("ask", "sleep", "approval", "client"):  # a person may take longer to answer
                story.violations.append(f"a takeover took {max(late):.1f} s, more than {bound:.1f} s")
            stories.append(story)
            words = "; ".join(story.violations) or "good"
            print(f"{number}/{kills} {faults} in {story.phase}: {words}", file=sys.stderr, flush=True)
    return stories


def summary(stories: list[Story]) -> str:
    kills = sum(len(story.kills) for story in stories)
    gaps = [gap for story in stories for gap in story.takeover_seconds]
    phases = Counter(story.phase for story in stories[1:])
    lines = [
        f"{len(stories)} runs, {kills} kills, {sum(story.owners_killed for story in stories)} of them of owners",
        "moments: " + ", ".join(f"{name} {count}" for name, count in sorted(phases.items())),
        f"operations with an unknown outcome: {sum(story.unknown_count for story in stories)}",
    ]
    if gaps:
        lines.append(f"takeovers: {len(gaps)}, median {statistics.median(gaps):.2f} s, longest {max(gaps):.2f} s")
    broken = [f"{story.chat_id} ({story.phase}): {each}" for story in stories for each in story.violations]
    return "\n".join([*lines, *(broken or ["every rule was kept"])])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.durable", description=__doc__)
    parser.add_argument("--kills", type=int, default=60, metavar="N", help="runs with a kill (%(default)s)")
    parser.add_argument("--seed", default=secrets.token_hex(4), metavar="TEXT", help="a new one by default")
    parser.add_argument("--phase", action="append", choices=list(PHASES), help="only these moments; may be repeated")
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="durable-kills-"))
    print(f"seed {given.seed}, in {directory}", file=sys.stderr, flush=True)
    stories = asyncio.run(run(given.kills, given.seed, directory, given.phase))
    print(summary(stories))
    return 1 if any(story.violations for story in stories) else 0


if __name__ == "__main__":
    sys.exit(main())
