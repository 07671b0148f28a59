"""Measures how long one command holds the store, in the store's own time, for everything that grows: imports,
checkpoints, blobs, logs, lists and leases.

A store carries out one command at a time, so all other commands may have to wait as long as the longest command. The
store's SLOWLOG measures from the start of a command to its end, including all commands of a script and excluding the
wait in the socket. Where the system permits it, the store runs with a real-time priority, because interruptions by
other programs would be counted as part of a command. Each figure is the median, over some rounds, of the longest
command of a round, and names that command.

To repeat: `python -m bench.holds [--small] [--store redis7]`.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import redis
from tests.support.store import BINARIES, StoreServer, running_store

from bench.figures import Figure, Section, announce, figure, progress, table
from bench.holds_cases import Case, chat_cases, imports, list_cases
from threadcast.store.embedded.embedded import PERSISTENT
from threadcast.store.redis.scripts import SCRIPTS
from threadcast.store.redis.store import RedisStore

__all__ = ["measure"]

HOLD_MAX_MS = 5.0
"""The longest time that one command may hold the store, in milliseconds."""

ROUNDS, ROUNDS_SMALL = 3, 2

LOGGED_ABOVE_US = 200
"""Shorter commands are not logged. With a limit of 20, SLOWLOG got thousands of entries from one case, and freeing them
made the first command of the next case take 9 to 15 ms."""

_NAMES = {script.sha: name for name, script in SCRIPTS.items()}


class Watched:
    """Reads from SLOWLOG the longest command since the last reading."""

    def __init__(self, server: StoreServer) -> None:
        self._server = server
        self.is_preferred = False
        with suppress(OSError):  # only a privileged process may do this
            os.sched_setscheduler(server.pid, os.SCHED_RR, os.sched_param(1))
            self.is_preferred = True
        server.ask("CONFIG", "SET", "slowlog-log-slower-than", LOGGED_ABOVE_US)
        server.ask("CONFIG", "SET", "slowlog-max-len", 100_000)

    def longest(self) -> tuple[float, str]:
        """Return the milliseconds and the name of the longest command, and clear the SLOWLOG."""
        with redis.Redis.from_url(self._server.url) as client:
            found = client.slowlog_get(-1)
            client.slowlog_reset()
        asked = [each for each in found if not each["command"].startswith(b"SLOWLOG")]
        longest = max(asked, key=lambda each: int(each["duration"]), default=None)
        if longest is None:
            return LOGGED_ABOVE_US / 1_000, "none longer"
        return longest["duration"] / 1_000, _name_of(longest["command"])


def _name_of(command: bytes) -> str:
    """Return the name of the script or of the command."""
    word, _, rest = command.partition(b" ")
    return _NAMES.get(rest[:40], "script") if word == b"EVALSHA" else word.decode().upper()


def measure(small: bool, store: str = "valkey") -> Section:
    """Measure the commands for every kind of large data; `small` has fewer rounds and a smaller import."""
    announce("holds", 80 if small else 200)
    rounds = ROUNDS_SMALL if small else ROUNDS
    found: dict[str, list[tuple[float, str]]] = defaultdict(list)
    titles: dict[str, str] = {}
    binary = BINARIES[store]
    if binary is None:
        raise SystemExit(f"{store} is not installed")
    remarks = []
    with tempfile.TemporaryDirectory() as directory:
        for number in range(rounds):
            with running_store(Path(directory) / f"store-{number}", PERSISTENT, binary=Path(binary)) as server:
                watched = Watched(server)
                asyncio.run(_round(server, watched, found, titles, f"holds: round {number + 1} of {rounds}"))
            progress(f"holds: import {number + 1} of {rounds}")
            with running_store(Path(directory) / f"import-{number}", PERSISTENT, binary=Path(binary)) as server:
                watched = Watched(server)
                for case in imports(server, Path(directory) / f"fleet-{number}", small=small):
                    _note(case, watched, found, titles)
        if not watched.is_preferred:
            remarks.append("the store had no real-time priority, so other programs lengthen its commands")
    figures = [_figure(key, titles[key], values) for key, values in found.items()]
    more = f"{' --small' * small}{'' if store == 'valkey' else f' --store {store}'}"
    title = f"the longest command of the store ({store})"
    return Section("holds", title, f"python -m bench.holds{more}", figures, remarks)


async def _round(
    server: StoreServer,
    watched: Watched,
    found: dict[str, list[tuple[float, str]]],
    titles: dict[str, str],
    title: str,
) -> None:
    async with RedisStore(server.url) as store:
        watched.longest()
        async for case in chat_cases(store, server):
            progress(f"{title}, {case.title}")
            _note(case, watched, found, titles)
        async for case in list_cases(store, server):
            progress(f"{title}, {case.title}")
            _note(case, watched, found, titles)


def _note(case: Case, watched: Watched, found: dict[str, list[tuple[float, str]]], titles: dict[str, str]) -> None:
    longest = watched.longest()
    if case.key:
        titles[case.key] = case.title
        found[case.key].append(longest)


def _figure(key: str, title: str, values: list[tuple[float, str]]) -> Figure:
    times = [ms for ms, _ in values]
    middle = statistics.median_low(times)
    name = next(name for ms, name in values if ms == middle)
    return figure(key, title, times, "ms", bar=HOLD_MAX_MS, note=name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="fewer rounds, and a smaller import")
    parser.add_argument("--store", choices=list(BINARIES), default="valkey", help="the server to measure")
    options = parser.parse_args()
    section = measure(options.small, options.store)
    progress("")
    print(table(section))
    sys.exit(1 if any(each.holds is False for each in section.figures) else 0)
