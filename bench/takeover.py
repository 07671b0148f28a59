"""How long nobody speaks when the owner of a chat dies, and when it is stopped: distributions, at default settings.

(a) kill -9 of the worker that owns several streaming chats: from the kill to the next event at a reader that stayed
connected. Bar 5 s (DESIGN §4.6). (b) SIGTERM of it: from the last event of the old owner to the first one of the new.
Bar 1 s. Real processes, a private Valkey, one web process; each stopped worker is replaced before, at a random moment
of its beat, so that chance and not the script decides how old the lease is. To repeat: `python -m bench.takeover [N]`
measures N chats of each kind (36 unless said otherwise), `--json` prints the figures for machines.
"""

import argparse
import functools
import json
import platform
import random
import sys
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import anyio

from tests.deploys.fleet import Fleet, TimedWatcher, ask, opened_fleet
from tests.integration.harness import Process, command, watching

CHATS_PER_STOP = 6
"""Of one worker. More would only repeat the same lease: the chats of a worker are beaten together."""

MODEL = "demo/essay?words=3000&rate=60"
"""An event about every 30 ms for longer than any measurement."""

BEAT_SECONDS = 1.1
"""The default beat: the moment of the stop is spread over one."""

BARS = {"takeover": 5.0, "hand-over": 1.0}
"""Seconds; what DESIGN §4.6 promises."""

WIDTH = 40
"""Of the histogram's longest bar, in characters."""


async def measure(kind: str, wanted: int, chance: random.Random) -> list[float]:
    """`wanted` gaps in seconds, by as many stops as that takes."""
    found: list[float] = []
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        fleet = opened_fleet(stack, Path(directory))
        web = await fleet.web()
        owner = await fleet.worker()
        while len(found) < wanted:
            owner, gaps = await _stop_once(fleet, web, owner, kind, chance, f"{kind}-{len(found)}")
            found += gaps
            print(f"\r{kind}: {len(found)} of {wanted}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found[:wanted]


async def _stop_once(
    fleet: Fleet, web: Process, owner: Process, kind: str, chance: random.Random, name: str
) -> tuple[Process, list[float]]:
    """Chats that `owner` alone can hold, then an heir, then the stop; the heir and each chat's gap in seconds."""
    chats = [TimedWatcher(f"{name}-{number}") for number in range(CHATS_PER_STOP)]
    async with AsyncExitStack() as readers:
        for chat in chats:
            await readers.enter_async_context(watching(web.url, chat.chat_id, watcher=chat))
            await ask(web.url, chat.chat_id, "write", MODEL)
        for chat in chats:
            await chat.until(lambda w: w.types().count("stream_delta") > 3)
        heir = await fleet.worker()
        await anyio.sleep(chance.uniform(0, BEAT_SECONDS))
        assert all(fleet.owner(chat.chat_id) is owner for chat in chats)
        stopped_at = time.monotonic()
        if kind == "takeover":
            owner.kill()
        else:
            assert await owner.stop() == 0
        fleet.workers.remove(owner)
        for chat in chats:
            await chat.until(lambda w: isinstance(w, TimedWatcher) and w.gaps(), 30)
            await command(web.url, chat.chat_id, {"type": "abort", "client_request_id": "stop"})
        for chat in chats:
            await chat.at_rest()
            assert chat.snapshots == 1, "a reader that stayed was thrown back to a snapshot"
    return heir, [_silence(chat, kind, stopped_at) for chat in chats]


def _silence(chat: TimedWatcher, kind: str, stopped_at: float) -> float:
    """Seconds without an event, as the bars count them."""
    events = [(epoch, at) for epoch, type_, at in chat.came if type_ != "snapshot"]
    last_of_old = max(at for epoch, at in events if epoch == events[0][0])
    first_of_new = min(at for epoch, at in events if epoch != events[0][0])
    return first_of_new - (stopped_at if kind == "takeover" else last_of_old)


def summary(gaps: list[float]) -> dict[str, float]:
    """Milliseconds, but for the count."""
    ordered = sorted(gaps)

    def quantile(share: float) -> float:
        return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))])

    return {
        "count": len(ordered),
        "min_ms": quantile(0),
        "p50_ms": quantile(0.5),
        "p90_ms": quantile(0.9),
        "max_ms": round(1000 * ordered[-1]),
    }


def histogram(gaps: list[float], bar_seconds: float) -> str:
    """Ten steps up to the bar, and what lies beyond it."""
    step = bar_seconds / 10
    counts = [0] * 11
    for gap in gaps:
        counts[min(10, int(gap / step))] += 1
    lines = []
    for number, count in enumerate(counts):
        label = f"{number * step:5.2f} s.." if number < 10 else "beyond    "
        lines.append(f"  {label} {count:4} {'#' * round(WIDTH * count / max(counts))}".rstrip())
    return "\n".join(lines)


async def main(wanted: int, seed: int, *, as_json: bool) -> int:
    """Measures both and prints them; 1 when a bar is broken."""
    chance = random.Random(seed)
    begun_at = time.monotonic()
    found = {kind: await measure(kind, wanted, chance) for kind in BARS}
    told = {kind: {**summary(gaps), "bar_ms": 1000 * BARS[kind]} for kind, gaps in found.items()}
    if as_json:
        print(json.dumps({"seed": seed, "python": platform.python_version(), **told}))
    else:
        print(f"seed {seed}, Python {platform.python_version()}, {time.monotonic() - begun_at:.0f} s in all")
        for kind, gaps in found.items():
            figures = ", ".join(f"{name.removesuffix('_ms')} {value:g}" for name, value in told[kind].items())
            print(f"{kind}, ms: {figures}\n{histogram(gaps, BARS[kind])}")
    return int(any(max(gaps) > BARS[kind] for kind, gaps in found.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.takeover", description="How long nobody speaks.")
    parser.add_argument("n", nargs="?", type=int, default=36, metavar="N", help="chats of each kind (36)")
    parser.add_argument("--seed", type=int, default=20, help="of the moments at which workers are stopped (20)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    if options.n < 1:
        parser.error("N must be at least 1")
    sys.exit(anyio.run(functools.partial(main, options.n, options.seed, as_json=options.json)))
