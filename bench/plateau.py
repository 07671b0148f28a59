"""Shows that a worker's cache of folded states stops growing: the worker's memory while it carries out many short runs.

Each run is in a new chat, so each leaves one more state in the cache, until the cache is full (`CACHE_MAX_BYTES` of
`server/threadcast/actor/worker_context.py`). A state of two messages is counted as 7 to 8 kB, so the cache is full
after some 35,000 runs. This program is not a row, because 50,000 runs take ten minutes: `python -m bench.plateau
[--runs N]`.
"""

import argparse
import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path

import redis
from tests.support.fleet import fleet_on_new_store

from bench.processes import rss_bytes
from bench.resting import ECHO, at_rest, limits, talk

__all__ = ["plateau"]

STEP = 2_500


async def plateau(stack: ExitStack, directory: Path, runs: int) -> list[tuple[int, float]]:
    """Return the runs and the worker's memory in MB after each step, and print them."""
    fleet = stack.enter_context(fleet_on_new_store(directory))
    given = limits(60)
    web, worker = await fleet.add_web(limits=given), await fleet.add_worker(limits=given)
    found: list[tuple[int, float]] = []
    with redis.Redis.from_url(fleet.store.url) as store:
        for done in range(0, runs, STEP):
            await talk(web, [f"run-{number}" for number in range(done, min(runs, done + STEP))], ECHO)
            await at_rest(store)
            found.append((min(runs, done + STEP), rss_bytes(worker.pid) / 1e6))
            print(f"{found[-1][0]:>7,} runs  {found[-1][1]:6.0f} MB", flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.plateau", description=__doc__)
    parser.add_argument("--runs", type=int, default=50_000)
    with tempfile.TemporaryDirectory() as opened, ExitStack() as closing:
        asyncio.run(plateau(closing, Path(opened), parser.parse_args().runs))
