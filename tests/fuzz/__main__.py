"""Long fuzzing by hand; the tests beside this file run short ones.

python -m tests.fuzz decoders --inputs 1000000 --seed 7     every decoder, in two processes
python -m tests.fuzz replay command 1234 --seed 7           one input of such a run again
python -m tests.fuzz http --seconds 600 --seed 7            the OpenAPI document, headers and raw bytes, on a server
"""

import argparse
import secrets
import sys
import traceback

import structlog

from tests.fuzz.decoders import report, run_all
from tests.fuzz.http import asked_for
from tests.fuzz.run import input_of
from tests.fuzz.targets import all_targets


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    decoders = parts.add_parser("decoders", help="inputs for every decoder")
    decoders.add_argument("--inputs", type=int, default=1_000_000, help="in all (default: a million)")
    decoders.add_argument("--processes", type=int, default=2)
    decoders.add_argument("--only", nargs="*", default=[], choices=sorted(all_targets()), metavar="DECODER")
    replay = parts.add_parser("replay", help="one input again, with the traceback of what it does")
    replay.add_argument("target", choices=sorted(all_targets()), metavar="DECODER")
    replay.add_argument("number", type=int)
    http = parts.add_parser("http", help="a server of its own, asked for a while")
    http.add_argument("--seconds", type=float, default=300)
    for part in (decoders, replay, http):
        part.add_argument("--seed", type=int, default=None, help="default: a fresh one, which is printed")
    chosen = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # laws are broken a thousand times an hour here
    seed = secrets.randbits(32) if chosen.seed is None else chosen.seed
    if chosen.part == "replay":
        return _replay(chosen.target, chosen.number, seed)
    if chosen.part == "http":
        return asked_for(chosen.seconds, seed)
    total = run_all(seed, chosen.inputs, chosen.processes, chosen.only)
    print(report(total, seed))
    return 1 if total.broken else 0


def _replay(name: str, number: int, seed: int) -> int:
    target = all_targets()[name]
    data, random = input_of(seed, target, number)
    print(f"{len(data)} bytes: {data[:4_000]!r}")
    try:
        print("accepted" if target.law(data, random) else "refused")
    except Exception:  # what the caller wants to see
        traceback.print_exc(file=sys.stdout)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
