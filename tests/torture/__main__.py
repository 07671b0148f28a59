"""The command line of `scripts/torture`: options, progress on the terminal, the report and the exit code.

The exit code is 0 if every promise was kept, 1 if a promise was broken (the report then names the directory with the
evidence), and 2 if the run could not be carried out.
"""

import argparse
import asyncio
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import uvloop

from tests.torture.faults import KINDS
from tests.torture.run import Options, torture

__all__ = ["main"]

STORES = ("valkey", "redis7", "both")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.seconds < 1:
        parser.error("--seconds: at least 1")
    unknown = set(given.faults) - set(KINDS)
    if unknown:
        print(f"torture: there is no fault called {', '.join(sorted(unknown))}; --help lists them", file=sys.stderr)
        return 2
    worst = 0
    for store in ("valkey", "redis7") if given.store == "both" else (given.store,):
        directory = Path(given.keep or tempfile.mkdtemp(prefix="torture-")) / store
        options = Options(
            seed=given.seed,
            directory=directory,
            store=store,
            seconds=given.seconds,
            chats=given.chats,
            subscribers=given.subscribers,
            real_clients=given.real_clients,
            mortals=given.mortals,
            tabs=given.tabs,
            webs=given.webs,
            workers=given.workers,
            commands_per_second=given.commands_per_second,
            faults_per_second=given.faults_per_second,
            faults=tuple(given.faults),
        )
        report_to = Path(given.report) if given.report else None
        if report_to is not None and given.store == "both":
            report_to = report_to.with_stem(f"{report_to.stem}-{store}")
        try:
            worst = max(worst, uvloop.run(_one(options, report_to)))
        except LookupError as wrong:
            print(f"torture: {wrong}", file=sys.stderr)
            return 2
    return worst


async def _one(options: Options, report_to: Path | None) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        print("torture: ending early; once more to give up", file=sys.stderr, flush=True)
        loop.remove_signal_handler(signal.SIGINT)
        stop.set()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    print(f"torture: seed {options.seed}, {options.store}, {options.seconds:.0f} s, in {options.directory}", flush=True)
    report = await torture(options, lambda words: print(f"  {words}", flush=True), stop)
    print(f"\n{report.text()}", flush=True)
    if report_to is not None:
        report_to.write_bytes(report.json())
    if report.is_good:
        shutil.rmtree(options.directory, ignore_errors=True)
    return 0 if report.is_good else 1


def _parser() -> argparse.ArgumentParser:
    kinds = "\n".join(f"  {name:12} {kind.meaning}" for name, kind in KINDS.items())
    parser = argparse.ArgumentParser(
        prog="scripts/torture",
        description="Real processes over a real store, a misbehaving proxy on every line between them, kill -9 and\n"
        "SIGSTOP of each kind of process, posters with duplicates and wild subscribers. Afterwards every\n"
        "accepted command must have taken effect exactly once or have been reported, and every subscriber,\n"
        "snapshot and answer must agree with the log to the letter. Exit code 1 says that something did not.",
        epilog=f"faults, and what they do:\n{kinds}\n\n"
        "With the same seed the same faults are drawn; what they meet is up to the processes. What was wrong is kept\n"
        "in a directory that the report names: logs of all processes, commands and log entries of each chat concerned.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    defaults = {field.name: field.default for field in msgspec.structs.fields(Options)}
    add = parser.add_argument
    add(
        "--seconds",
        type=float,
        default=defaults["seconds"],
        metavar="N",
        help="of faults and load (%(default)s); coming to rest and judging take a minute or more beside",
    )
    add("--seed", default=secrets.token_hex(4), metavar="TEXT", help="of faults and load; a new one by default")
    add("--store", choices=STORES, default="valkey", help="the embedded Valkey, or redis-server from the PATH")
    add("--chats", type=int, default=defaults["chats"], metavar="N", help="each with a poster and reader (%(default)s)")
    add("--subscribers", type=int, default=defaults["subscribers"], metavar="N", help="wild ones more (%(default)s)")
    add(
        "--real-clients",
        type=int,
        default=defaults["real_clients"],
        metavar="N",
        help="chats driven through the product's Python client (%(default)s)",
    )
    add("--mortals", type=int, default=defaults["mortals"], metavar="N", help="chats that are deleted (%(default)s)")
    add("--tabs", type=int, default=defaults["tabs"], metavar="N", help="streams changed while open (%(default)s)")
    add("--webs", type=int, default=defaults["webs"], metavar="N", help="web processes (%(default)s)")
    add("--workers", type=int, default=defaults["workers"], metavar="N", help="worker processes (%(default)s)")
    add(
        "--commands-per-second",
        type=float,
        default=defaults["commands_per_second"],
        metavar="N",
        help="tried (%(default)s)",
    )
    add(
        "--faults-per-second",
        type=float,
        default=defaults["faults_per_second"],
        metavar="N",
        help="drawn (%(default)s)",
    )
    add("--faults", nargs="+", default=[], metavar="KIND", help="only these (all)")
    add("--report", metavar="FILE.json", help="the report as JSON too; with both stores, one file each")
    add("--keep", metavar="DIR", help="work in this directory instead of a temporary one")
    return parser


if __name__ == "__main__":
    sys.exit(main())
