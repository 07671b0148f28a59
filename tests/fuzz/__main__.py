"""Start a server and fuzz it for some time: by the OpenAPI document, with odd headers and queries, and with raw bytes.

python -m tests.fuzz --seconds 600 --seed 7

The tests in this directory do the same for a short time, and also fuzz the decoders.
"""

import argparse
import secrets

from tests.fuzz.http import EXAMPLES, asked_for


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300, help="at least one round is made (default: 300)")
    parser.add_argument("--seed", type=int, default=None, help="default: a fresh seed, which is printed")
    parser.add_argument(
        "--examples", type=int, default=EXAMPLES, help=f"of each operation in a round (default: {EXAMPLES})"
    )
    chosen = parser.parse_args()
    return asked_for(chosen.seconds, secrets.randbits(32) if chosen.seed is None else chosen.seed, chosen.examples)


if __name__ == "__main__":
    raise SystemExit(main())
