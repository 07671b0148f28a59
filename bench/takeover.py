"""Measures the pause in a chat's events when its worker dies and when it is stopped: distributions, with default
settings.

(a) `takeover`: kill -9 of the worker that owns several streaming chats; the time from the kill to the next event at a
connected reader. (b) `lost`: the same for a worker whose machine is lost. The worker's connections stay open (SIGSTOP),
so only its expired leases show that it is gone. (c) `hand-over`: SIGTERM of the worker; the time from its last event to
the first event of the next owner. `BARS` has the limits (DESIGN §4.6).

The processes are real, with a private Valkey and one web process. Another worker is started before each stop, and the
stop is at a random moment between two renewals of the lease, so that the age of the lease is random. To repeat: `python
-m bench.takeover [N]` measures N stops of each kind (by default 6), each with 6 chats; `--kind` measures one kind, and
`--json` prints the figures as JSON. `bench.pauses` counts how often chats are taken over from a worker that only
pauses.
"""

import argparse
import functools
import json
import platform
import random
import signal
import sys
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import anyio
from tests.support.fleet import Fleet, fleet_on_new_store
from tests.support.reader import TimedWatcher, watching
from tests.support.server import Process, ask, command

CHATS_PER_STOP = 6
"""The number of chats of one worker. More chats would give the same results, because a worker renews all its leases
together."""

MODEL = "demo/essay?words=3000&rate=60"
"""A model that writes an event about every 30 ms, for longer than any measurement."""

BEAT_SECONDS = 1.1
"""The interval between renewals of a lease, over which the stops are spread."""

BARS = {
    "takeover": {"p99_ms": 1_200},
    "lost": {"max_ms": 5_000},
    "hand-over": {"p50_ms": 200, "max_ms": 1_000},
}
"""The limits by kind of stop and figure, in milliseconds (DESIGN §4.6)."""

WIDTH = 40
"""The length of the histogram's longest bar, in characters."""


async def measure(kind: str, stops: int, chance: random.Random) -> list[float]:
    """Return the pauses of all chats in seconds."""
    found: list[float] = []
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        fleet = stack.enter_context(fleet_on_new_store(Path(directory)))
        web = await fleet.add_web()
        owner = await fleet.add_worker()
        for stop in range(stops):
            owner, gaps = await _stop_once(fleet, web, owner, kind, chance, f"{kind}-{stop}")
            found += gaps
            print(f"\r{kind}: {stop + 1} of {stops}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


async def _stop_once(
    fleet: Fleet, web: Process, owner: Process, kind: str, chance: random.Random, name: str
) -> tuple[Process, list[float]]:
    """Start chats that only `owner` can own, start another worker, and stop the owner. Returns the other worker and the
    pause of each chat in seconds."""
    chats = [TimedWatcher(f"{name}-{number}") for number in range(CHATS_PER_STOP)]
    async with AsyncExitStack() as readers:
        for chat in chats:
            await readers.enter_async_context(watching(web.url, chat.chat_id, watcher=chat))
            await ask(web.url, chat.chat_id, "write", MODEL)
        for chat in chats:
            await chat.until(lambda w: w.types().count("stream_delta") > 3)
        heir = await fleet.add_worker()
        await anyio.sleep(chance.uniform(0, BEAT_SECONDS))
        assert all(fleet.owner(chat.chat_id) is owner for chat in chats)
        stopped_at = time.monotonic()
        if kind == "takeover":
            owner.kill()
        elif kind == "lost":
            owner.send(signal.SIGSTOP)
        else:
            assert await owner.stop() == 0
        fleet.workers.remove(owner)
        for chat in chats:
            await chat.until(lambda w: isinstance(w, TimedWatcher) and w.gaps(), 30)
            await command(web.url, chat.chat_id, {"type": "abort", "client_request_id": "stop"})
        for chat in chats:
            await chat.at_rest()
            assert chat.snapshots == 1, "a connected reader got a snapshot instead of the next event"
    if kind == "lost":
        owner.kill()
    return heir, [_silence(chat, kind, stopped_at) for chat in chats]


def _silence(chat: TimedWatcher, kind: str, stopped_at: float) -> float:
    """Return the seconds without an event: from the stop, or for a handover from the old owner's last event, to the new
    owner's first event."""
    events = [(epoch, at) for epoch, type_, at in chat.came if type_ != "snapshot"]
    last_of_old = max(at for epoch, at in events if epoch == events[0][0])
    first_of_new = min(at for epoch, at in events if epoch != events[0][0])
    return first_of_new - (last_of_old if kind == "hand-over" else stopped_at)


def summary(gaps: list[float]) -> dict[str, float]:
    """Return the figures of the distribution in milliseconds, and the count."""
    ordered = sorted(gaps)

    def quantile(share: float) -> float:
        return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))])

    return {
        "count": len(ordered),
        "min_ms": quantile(0),
        "p50_ms": quantile(0.5),
        "p90_ms": quantile(0.9),
        "p99_ms": quantile(0.99),
        "max_ms": round(1000 * ordered[-1]),
    }


def histogram(gaps: list[float], bar_ms: float) -> str:
    """Return a histogram with ten steps up to the bar, and one for all longer pauses."""
    step = bar_ms / 10_000
    counts = [0] * 11
    for gap in gaps:
        counts[min(10, int(gap / step))] += 1
    lines = []
    for number, count in enumerate(counts):
        label = f"{number * step:5.2f} s.." if number < 10 else "beyond    "
        lines.append(f"  {label} {count:4} {'#' * round(WIDTH * count / max(counts))}".rstrip())
    return "\n".join(lines)


async def main(stops: int, seed: int, kinds: list[str], *, as_json: bool) -> int:
    """Measure the kinds and print the figures. Returns 1 if a bar was missed."""
    chance = random.Random(seed)
    begun_at = time.monotonic()
    found = {kind: await measure(kind, stops, chance) for kind in kinds}
    told = {kind: summary(gaps) for kind, gaps in found.items()}
    missed = [
        f"{kind}: {figure} is {told[kind][figure]:g}, more than {bar:g}"
        for kind in kinds
        for figure, bar in BARS[kind].items()
        if told[kind][figure] > bar
    ]
    if as_json:
        print(json.dumps({"seed": seed, "python": platform.python_version(), "missed": missed, **told}))
    else:
        print(f"seed {seed}, Python {platform.python_version()}, {time.monotonic() - begun_at:.0f} s in all")
        for kind, gaps in found.items():
            figures = ", ".join(f"{name.removesuffix('_ms')} {value:g}" for name, value in told[kind].items())
            print(f"{kind}, ms: {figures}\n{histogram(gaps, max(BARS[kind].values()))}")
        print("\n".join(missed))
    return int(bool(missed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.takeover", description="How long nobody speaks.")
    parser.add_argument("n", nargs="?", type=int, default=6, metavar="N", help="stops of each kind (6)")
    parser.add_argument("--kind", choices=sorted(BARS), help="measure this kind alone")
    parser.add_argument(
        "--seed", type=int, default=20, help="seed of the random moments at which workers are stopped (20)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args()
    if options.n < 1:
        parser.error("N must be at least 1")
    chosen = [options.kind] if options.kind else list(BARS)
    sys.exit(anyio.run(functools.partial(main, options.n, options.seed, chosen, as_json=options.json)))
