"""`python -m bench [row ...]`: the rows of the budget measured one after the other, printed, and kept as JSON.

A row is a module of this package with `measure(small)`; its own command runs it alone. Only the names are known here.
Before and after all of them the machine's own noise is measured, and stands at the end of the report. The rule: rows
run one at a time, never side by side.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path
from typing import Protocol

import msgspec

from bench.figures import Section, progress, table
from bench.noise import noise
from bench.processes import machine

__all__ = ["ROWS", "main"]

ROWS = {
    "fanout": "500 readers of one chat beside a C program, nchan, Starlette and sse-starlette",
    "growth": "1 to 5,000 readers, and 1,000 chats of two: what an event, a reader, a chat adds",
    "tokens": "model bytes in to SSE bytes out, 1 to 500 chats that stream",
    "latency": "append to reader, POST to 202, POST to first delta",
    "memory": "an idle reader, a chat at rest, a chat that runs, a reader that stalls",
    "join": "a snapshot of 10, 1,000 and 10,000 messages, alone and 500 at once; resume",
    "start": "import, ready, first answer",
    "peers": "the same work on other servers",
    "page": "the page in Chromium: a long chat opened, frames while an answer streams, sizes",
}
"""By module. What each shows, for `--help`."""


class Row(Protocol):
    """What a row's module offers."""

    def measure(self, small: bool) -> Section:
        """Run it. `small` is the set that two commits are compared by: a share of the time, the same keys."""


class Report(msgspec.Struct):
    """All that was printed, for `bench.chart` and `bench.compare`. Times in seconds since the epoch."""

    taken_at: int
    machine: dict[str, str | int]
    sections: list[Section]
    noise: list[str] = []
    """Of the machine, before and after; in words."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="row", help="; ".join(f"{k}: {v}" for k, v in ROWS.items()))
    parser.add_argument("--small", action="store_true", help="a share of the time, for comparisons")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures here too")
    options = parser.parse_args(arguments)
    unknown = [row for row in options.rows if row not in ROWS]
    if unknown:
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    report = Report(int(time.time()), machine(), [])
    before = noise()
    for name in options.rows or ROWS:
        progress(f"{name}: {ROWS[name]} ...")
        row: Row = importlib.import_module(f"bench.{name}")
        section = row.measure(options.small)
        progress("")
        print(table(section), end="\n\n", flush=True)
        report.sections.append(section)
    report.noise = [f"before: {before}", f"after: {noise()}"]
    print(f"the machine's noise: {'; '.join(report.noise)}")
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return 1 if any(each.holds is False for section in report.sections for each in section.figures) else 0


if __name__ == "__main__":
    sys.exit(main())
