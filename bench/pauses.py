"""Counts how often chats are taken over from a worker that only pauses: a busy worker is stopped for 300 ms, again and
again.

A pause of a virtual machine or of the garbage collector looks like this: the process stands still and its connections
stay open (SIGSTOP, then SIGCONT). Two workers own streaming chats, and one after the other is stopped. Every takeover
is unnecessary. To repeat: `python -m bench.pauses [STOPS]`, by default 1,000, which take ten minutes; `--milliseconds`
sets the length of a pause.
"""

import argparse
import functools
import itertools
import random
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import anyio
from tests.support.fleet import Fleet, fleet_on_new_store
from tests.support.reader import Watcher, watching
from tests.support.server import ask

__all__ = ["count_takeovers"]

CHATS = 20
MODEL = "demo/essay?words=2000&rate=40"
WORKERS = 2

ANSWER_SECONDS = 600.0
"""Time limit of an answer, which takes half a minute plus the pauses."""

REST_SECONDS = 0.2
"""Seconds between two stops, in which heartbeats and appends catch up."""


async def count_takeovers(fleet: Fleet, stops: int, pause_seconds: float, chance: random.Random) -> int:
    """Stop the workers of `fleet` `stops` times in all while they stream. The fleet must have a web process. Returns
    the number of chats that were taken over."""
    async with AsyncExitStack() as readers:
        tasks = await readers.enter_async_context(anyio.create_task_group())
        for number in range(CHATS):
            chat = Watcher(f"paused-{number}")
            await readers.enter_async_context(watching(fleet.webs[0].url, chat.chat_id, watcher=chat))
            tasks.start_soon(_keep_writing, fleet, chat)
        for stop in range(stops):
            worker = chance.choice(fleet.workers)
            await anyio.sleep(chance.uniform(0.5, 1.5) * REST_SECONDS)
            worker.send(signal.SIGSTOP)
            try:
                await anyio.sleep(pause_seconds)
            finally:
                worker.send(signal.SIGCONT)
            if stop % 10 == 9:
                taken = len(fleet.logged("chat.taken_over"))
                print(f"\r{stop + 1} of {stops}, {taken} taken over", end="", file=sys.stderr, flush=True)
        await anyio.sleep(1.0)  # a verdict would come by then
        tasks.cancel_scope.cancel()
    print(file=sys.stderr)
    return len(fleet.logged("chat.taken_over"))


async def _keep_writing(fleet: Fleet, chat: Watcher) -> None:
    """Ask for one long answer after the other."""
    for number in itertools.count(1):
        await ask(fleet.webs[0].url, chat.chat_id, "write", MODEL, f"r{number}")
        await chat.at_rest(number, ANSWER_SECONDS)


async def main(stops: int, pause_seconds: float, seed: int) -> int:
    """Count and print. Returns 1 if a chat was taken over."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        fleet = stack.enter_context(fleet_on_new_store(Path(directory), "--log-format", "json"))
        await fleet.open(WORKERS)
        taken = await count_takeovers(fleet, stops, pause_seconds, random.Random(seed))
    print(f"{stops} stops of {1000 * pause_seconds:g} ms, {CHATS} streaming chats: {taken} chats taken over")
    return int(taken > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.pauses", description="Who is taken over while it pauses.")
    parser.add_argument("stops", nargs="?", type=int, default=1_000, metavar="STOPS", help="number of stops (1000)")
    parser.add_argument("--milliseconds", type=float, default=300.0, help="length of each (300)")
    parser.add_argument("--seed", type=int, default=20, help="seed of the moments (20)")
    options = parser.parse_args()
    sys.exit(anyio.run(functools.partial(main, options.stops, options.milliseconds / 1000, options.seed)))
