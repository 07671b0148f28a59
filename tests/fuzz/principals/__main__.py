"""Start a fleet, attack it as a second principal for some time, and print counts of the requests.

python -m tests.fuzz.principals --seconds 600 --seed 7
"""

import argparse
import secrets
import tempfile
import time
from collections import Counter
from pathlib import Path

import anyio

from tests.fuzz.principals.run import Round
from tests.fuzz.principals.served import served

ROUND_SECONDS = 30.0


async def attack(seconds: float, seed: int) -> None:
    """Attack in rounds until the time is over, in at least one round with known ids and one round without known ids."""
    answers: Counter[str] = Counter()
    began = time.monotonic()
    rounds = 0
    with tempfile.TemporaryDirectory(prefix="threadcast-principals-") as base:
        async with served(Path(base)) as fleet:
            while rounds < 2 or time.monotonic() - began < seconds:
                print(f"round {rounds + 1}: --seed {seed + rounds}", flush=True)
                this = Round(fleet, seed + rounds, knows_ids=rounds % 2 == 0)
                await this.run(min(ROUND_SECONDS, seconds / 2))
                answers += this.answers
                rounds += 1
    for kind, count in sorted(answers.items()):
        print(f"{kind:<32}{count:>8,}")
    print(f"{rounds} rounds in {time.monotonic() - began:.0f} s: nothing of one principal reached the other or changed")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.principals",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=300, help="at least two rounds are made (default: 300)")
    parser.add_argument("--seed", type=int, default=None, help="default: a fresh seed, which is printed")
    chosen = parser.parse_args()
    anyio.run(attack, chosen.seconds, secrets.randbits(32) if chosen.seed is None else chosen.seed)


if __name__ == "__main__":
    main()
