"""Measures CPU times that `bench.capacity` uses and that no other row measures: of a turn, of an idle reader, of an
idle process, and of one more web process that reads a channel of the store.

One web process and one worker share a store. A turn is a command, a short answer of the demo model and the rest of the
chat, with one reader; it costs as much as a real turn without its long answer. The compaction of the chats, which
comes later, is measured by itself. `python -m bench.turns` runs the
program.
"""

import argparse
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import anyio
import redis
from tests.support.fleet import Fleet, fleet_on_new_store
from tests.support.server import Process
from tests.support.store import running_store

from bench.figures import Figure, Section, announce, figure, progress, table
from bench.processes import cpu_seconds, rss_bytes
from bench.resting import ECHO, at_rest, compacted, limits, talk
from bench.streams import Streams, allow_open_files, get

__all__ = ["measure"]

IDLE_SECONDS = 15.0
"""The interval between two heartbeats of a silent stream, so that each idle reader gets one."""

COMPACT_AFTER_SECONDS = 20.0
"""Long enough that no log is compacted while turns are measured."""

PUBLISHED = 2_000
SUBSCRIBERS = 1, 11
MESSAGE = b"x" * 200


def measure(small: bool) -> Section:
    """Measure for a minute or two; `small` has fewer chats, readers and rounds."""
    announce("turns", 70 if small else 150)
    count, rounds = (300, 2) if small else (1_000, 4)
    allow_open_files(4 * count + 2_000)
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        figures = anyio.run(_measure, stack, Path(directory), count, rounds)
    command = f"python -m bench.turns{' --small' * small}"
    return Section("turns", "turns, idle readers, idle processes", command, figures)


async def _measure(stack: ExitStack, directory: Path, count: int, rounds: int) -> list[Figure]:
    fleet = stack.enter_context(fleet_on_new_store(directory, limits=limits(COMPACT_AFTER_SECONDS)))
    web, worker = await fleet.add_web(), await fleet.add_worker()
    store = stack.enter_context(redis.Redis.from_url(fleet.store.url))
    await talk(web, [f"warm-{number}" for number in range(count)], ECHO)
    await compacted(store)
    memory = [rss_bytes(pid) / 1e6 for pid in (web.pid, worker.pid)]
    progress("turns: idle processes")
    empty = [_spent(fleet, web, worker, lambda: time.sleep(IDLE_SECONDS)) for _ in range(rounds)]
    turns, rests, idle = [], [], []
    for number in range(rounds):
        progress(f"turns: {count} turns, round {number + 1} of {rounds}")
        names = [f"turn-{number}-{each}" for each in range(count)]
        with Streams(web.url) as streams:
            streams.open(get(f"/v1/chats/subscribe?chat_id={name}") for name in names)
            before = _clocks(fleet, web, worker)
            await talk(web, names, ECHO)
            await at_rest(store)
            after = _clocks(fleet, web, worker)
            turns.append([(b - a) / count for a, b in zip(before, after, strict=True)])
            began_at = time.monotonic()
            await compacted(store)
            waited = time.monotonic() - began_at
            rests.append(
                [
                    (b - a - waited * alone) / count
                    for a, b, alone in zip(after, _clocks(fleet, web, worker), empty[number], strict=True)
                ]
            )
            with_readers = _spent(fleet, web, worker, lambda: time.sleep(IDLE_SECONDS))
            idle.append([(a - b) / count for a, b in zip(with_readers, empty[number], strict=True)])
    published = [_published_us(directory / f"publish-{number}") for number in range(rounds)]
    who = ("web", "worker", "store")
    per_second = [f"CPU of an idle {name}, a second" for name in who]
    return [
        *(
            _figure(f"idle {name}", what, [1e6 * e[i] for e in empty])
            for i, (name, what) in enumerate(zip(who, per_second, strict=True))
        ),
        *(
            _figure(f"turn {name}", f"CPU of a turn with a reader, {name}", [1e6 * e[i] for e in turns])
            for i, name in enumerate(who)
        ),
        *(
            _figure(f"rest {who[i]}", f"CPU of compacting a chat at rest, {who[i]}", [1e6 * e[i] for e in rests])
            for i in (1, 2)
        ),
        _figure("reader web", "CPU of an idle reader a second, web", [1e6 * e[0] for e in idle]),
        _figure("reader store", "CPU of an idle reader a second, store", [1e6 * e[2] for e in idle]),
        figure("memory web", "memory of an idle web", memory[:1], "MB"),
        figure("memory worker", "memory of an idle worker", memory[1:], "MB"),
        _figure("publish", "CPU of a message for one more subscriber, store", published),
    ]


def _figure(key: str, what: str, values: list[float]) -> Figure:
    return figure(key, what, values, "us")


def _clocks(fleet: Fleet, web: Process, worker: Process) -> list[float]:
    return [cpu_seconds(pid) for pid in (web.pid, worker.pid, fleet.store.pid)]


def _spent(fleet: Fleet, web: Process, worker: Process, wait: Callable[[], None]) -> list[float]:
    """Call `wait`, and return each process's CPU seconds per second meanwhile."""
    began_at, before = time.monotonic(), _clocks(fleet, web, worker)
    wait()
    passed = time.monotonic() - began_at
    return [(b - a) / passed for a, b in zip(before, _clocks(fleet, web, worker), strict=True)]


def _published_us(directory: Path) -> float:
    """Return the CPU microseconds of a separate store for each message of 200 bytes and each further subscriber."""
    with running_store(directory) as server:
        costs = []
        for subscribers_count in SUBSCRIBERS:
            with ExitStack() as stack:
                publisher = stack.enter_context(redis.Redis.from_url(server.url))
                subscribers = [_subscriber(stack, server.url) for _ in range(subscribers_count)]
                before = cpu_seconds(server.pid)
                for _ in range(PUBLISHED):
                    publisher.publish("channel", MESSAGE)
                    for each in subscribers:
                        each.recv(4_096)
                costs.append((cpu_seconds(server.pid) - before) / PUBLISHED)
        return 1e6 * (costs[1] - costs[0]) / (SUBSCRIBERS[1] - SUBSCRIBERS[0])


def _subscriber(stack: ExitStack, url: str) -> socket.socket:
    """Return a connection that reads the channel."""
    reader = stack.enter_context(socket.socket(socket.AF_UNIX))
    reader.connect(url.removeprefix("unix://"))
    reader.sendall(b"SUBSCRIBE channel\r\n")
    reader.recv(4_096)
    return reader


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.turns", description=__doc__)
    parser.add_argument("--small", action="store_true", help="measure in less time")
    section = measure(parser.parse_args().small)
    progress("")
    print(table(section))
