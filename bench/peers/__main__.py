"""`python -m bench.peers [NAME ...] [--small]`: measures only this row, for all peers, or for the named peers and
Threadcast."""

import argparse
import sys

from bench.figures import progress, table
from bench.peers.report import PEERS, ROUNDS, measure

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("peers", nargs="*", metavar="NAME", help=", ".join(PEERS))
    parser.add_argument("--small", action="store_true", help="one round, no trials")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of loads ({ROUNDS})")
    options = parser.parse_args()
    unknown = [name for name in options.peers if name not in PEERS]
    if unknown:
        parser.error(f"no peer {', '.join(unknown)}; there are {', '.join(PEERS)}")
    section = measure(options.small, options.peers, options.rounds)
    progress("")
    print(table(section))
    sys.exit(0)
