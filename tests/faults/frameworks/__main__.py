"""kill -9 of the owner at random moments of a framework's runs: `python -m tests.faults.frameworks --framework NAME
--kills 30 --seed TEXT`.

Real web and worker processes over a real store, two clients, a person who answers, and a file that counts effects.
Progress goes to stderr, the summary to stdout. Exit code 1: a run broke a rule. The same seed draws the same moments.
"""

import argparse
import asyncio
import random
import secrets
import sys
import tempfile
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

from tests.faults.durable.__main__ import summary
from tests.faults.durable.story import Story, bound_seconds, play
from tests.faults.frameworks.story import PHASES, judge_of
from tests.support.fleet import FAST, Fleet, running_fleet
from tests.support.store import running_store
from threadcast.store.embedded.embedded import PERSISTENT

__all__ = ["FRAMEWORKS", "main", "run"]

HERE = Path(__file__).parent
FRAMEWORKS = sorted(path.stem.removesuffix("_app") for path in HERE.glob("*_app.py"))

TWICE_EVERY = 6
"""Every sixth fault kills the owner twice in a row."""


async def run(framework: str, kills: int, seed: str, directory: Path, phases: list[str] | None = None) -> list[Story]:
    """Play this many runs with a kill each, and one run without a kill."""
    app = import_module(f"tests.faults.frameworks.{framework}_app")
    chance = random.Random(seed)
    stories: list[Story] = []
    with ExitStack() as stack:
        store = stack.enter_context(running_store(directory / "store", PERSISTENT))
        options = stack.enter_context(app.EXTRAS(directory))
        if "--config" not in options:
            options = ["--app", str(HERE / f"{framework}_app.py"), *options]
        fleet: Fleet = stack.enter_context(running_fleet(directory, store.url, *options, limits=FAST))
        fleet.store = store
        await fleet.open()
        order = phases or list(PHASES)
        for number in range(kills + 1):
            if number % len(order) == 0:
                chance.shuffle(order)
            faults = "none" if number == 0 else "two" if number % TWICE_EVERY == 0 else "one"
            phase = order[number % len(order)]
            is_remote = getattr(app, "IS_REMOTE", False)
            story = await play(
                fleet,
                f"{framework}-{number}".replace("_", "-"),
                chance,
                phase,
                faults,
                phases=PHASES,
                may_be_interrupted=is_remote,
                judge=judge_of(app),
            )
            late = [gap for gap in story.takeover_seconds if gap > bound_seconds()] if faults == "one" else []
            if late and phase != "parked":  # a person may take longer
                story.violations.append(f"a takeover took {max(late):.1f} s")
            stories.append(story)
            words = "; ".join(story.violations) or "good"
            print(f"{framework} {number}/{kills} {faults} in {phase}: {words}", file=sys.stderr, flush=True)
    return stories


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.frameworks", description=__doc__)
    parser.add_argument("--framework", choices=FRAMEWORKS, action="append", help="only this one; may be repeated")
    parser.add_argument("--kills", type=int, default=30, metavar="N", help="runs with a kill (%(default)s)")
    parser.add_argument("--seed", default=secrets.token_hex(4), metavar="TEXT", help="a new one by default")
    parser.add_argument("--phase", action="append", choices=list(PHASES), help="only these moments; may be repeated")
    given = parser.parse_args()
    has_failed = False
    for framework in given.framework or FRAMEWORKS:
        directory = Path(tempfile.mkdtemp(prefix=f"{framework}-kills-"))
        print(f"{framework}, seed {given.seed}, in {directory}", file=sys.stderr, flush=True)
        stories = asyncio.run(run(framework, given.kills, given.seed, directory, given.phase))
        print(f"{framework}: {summary(stories)}")
        has_failed = has_failed or any(story.violations for story in stories)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
