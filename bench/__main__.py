"""`python -m bench [row ...]`: measures the rows of the budget one after the other, prints the figures and writes JSON.

A row is a module of this package with a function `measure(small)`; `python -m bench.ROW` runs one row. The noise of the
machine is measured before and after the rows and printed at the end of the report. Rows never run at the same time.
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
    "growth": "1 to 5,000 readers, and 1,000 chats with two readers each: the cost of one more event, reader and chat",
    "tokens": "the whole way of a token, from the model's bytes to the reader's, in 1 to 1,500 streaming chats",
    "latency": "append to reader, POST to 202, POST to first delta",
    "memory": "the memory of an idle reader, a chat at rest, a running chat and a stalled reader",
    "join": "a snapshot of 10, 1,000 and 10,000 messages, alone and 500 at once; resume",
    "long_chats": "a turn in chats of 10, 1,000 and 10,000 messages; the neighbours of long chats",
    "agents": "durable agents: 1,000 parked ones, the cost of a step, the replay of 1,000 recorded operations",
    "frameworks": "served agents of other frameworks: CPU of a token over the framework streaming into a list",
    "doors": "CPU of a token through each door for other clients, beside our own stream",
    "start": "import, ready, first answer",
    "peers": "the same work on other servers",
    "bombs": "requests made to be slow: how long one keeps the event loop busy",
    "fairness": "the first token of 50 modest callers while another caller floods the server with slow runs",
    "floods": "floods of hostile requests: memory, /livez, and what another caller waits",
    "holds": "how long one command holds the store: imports, checkpoints, blobs, logs, lists, leases",
    "turns": "CPU of a turn, of an idle reader and of idle processes: costs that capacity needs",
    "ids": "computed, not measured: the bytes of an SSE id on a stream of 1 to 64 chats",
    "capacity": "computed, not measured: the processes for 100, 10,000 and 1,000,000 readers",
    "page": "the page in Chromium: opening a long chat, frames while an answer streams, download sizes",
}
"""Maps the name of each row, which is a module, to its description in `--help`."""


class Row(Protocol):
    """The function that the module of a row must have."""

    def measure(self, small: bool) -> Section:
        """Measure the row. `small`: measure the small set, with which two commits are compared. It takes less time and
        has the same keys."""


class Report(msgspec.Struct):
    """The figures of one run, for `bench.chart` and `bench.compare`. Times are in seconds since the epoch."""

    taken_at: int
    machine: dict[str, str | int]
    sections: list[Section]
    noise: list[str] = []
    """The noise of the machine before and after the run, in words."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="row", help="; ".join(f"{k}: {v}" for k, v in ROWS.items()))
    parser.add_argument("--small", action="store_true", help="measure in less time, for comparisons")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file, too")
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
