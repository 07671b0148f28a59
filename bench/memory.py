"""What waiting costs: an idle reader, a chat at rest, a chat that runs; and in `bench.stalls` a reader that stalls.

Memory is what a process holds privately (`rss_bytes`), before and after, divided by how many there are. An idle reader
of ours stands beside the same from uvicorn with Starlette alone. To repeat: `python -m bench.memory [--small]`. The
rule: nothing is measured before the same thing was done some hundred times, so that caches and lazily imported modules
count for nobody.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import anyio
import httpx2
import redis

from bench.figures import Figure, Section, figure, progress, ratio, table
from bench.plain_app import plain_server
from bench.processes import rss_bytes
from bench.stalls import stalled_figures
from bench.streams import GREETED, Streams, allow_open_files, get
from server.store.keys import Keys
from tests.deploys.fleet import opened_fleet
from tests.integration.harness import Process, user_message

__all__ = ["measure"]

IDLE_MAX_BYTES = 16_000
"""The bar: 10,000 readers in 160 MB."""

WARM = 300
"""Streams that are open already, and chats that have come to rest, before anything is measured."""

SETTLE_SECONDS = 1.0
"""For tasks that end, and for what is done a moment after a stream begins."""

HUNG = "demo/hang?after=20&rate=0"
"""A model that says twenty words and then nothing, for ever: its chat runs, and costs no CPU."""

WATCH_SECONDS = 20.0
"""A chat at rest that is watched is compared with the store once in this time."""

AT_ONCE = 32

LIMITS = {
    "STREAMS_PER_PRINCIPAL": "20000",
    "WORKER_MAX_CHATS": "1000",
}


def measure(small: bool) -> Section:
    """About a tenth of the numbers when `small`."""
    few, many, chats, active = (300, 1_000, 300, 60) if small else (1_000, 10_000, 10_000, 200)
    allow_open_files(many + 2_000)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        figures += asyncio.run(_idle(stack, Path(directory), few, many))
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        figures += asyncio.run(_chats(stack, Path(directory), chats, active))
    figures += stalled_figures(30 if small else 100, rounds=1 if small else 3)
    return Section("memory", "what waiting costs", f"python -m bench.memory{' --small' * small}", figures)


async def _idle(stack: ExitStack, directory: Path, few: int, many: int) -> list[Figure]:
    """Readers of one chat, of a chat each, and of Starlette."""
    fleet = opened_fleet(stack, directory)
    kinds: dict[str, Callable[[int], bytes]] = {
        "one": lambda _: get("/v1/chats/subscribe?chat_id=one"),
        "own": lambda number: get(f"/v1/chats/subscribe?chat_id=own-{number}"),
        "bare": lambda _: get("/bare"),
        "queue": lambda _: get("/queue"),
    }
    found: dict[str, float] = {}
    for count in (few, many):
        for kind, request in kinds.items():
            progress(f"memory: {count:,} idle readers, {kind}")
            requests = [request(number) for number in range(WARM + count)]
            if kind in ("bare", "queue"):
                with plain_server() as (url, pid):
                    found[f"{kind}_{count}"] = _per_stream(url, pid, requests)
            else:
                web = await fleet.web(limits=LIMITS)
                found[f"{kind}_{count}"] = _per_stream(web.url, web.pid, requests)
                await web.stop()
    return [
        _bytes("one_few", f"idle reader, {few:,} of one chat", [found[f"one_{few}"]], IDLE_MAX_BYTES),
        _bytes("one_many", f"idle reader, {many:,} of one chat", [found[f"one_{many}"]], IDLE_MAX_BYTES),
        _bytes("own_few", f"idle reader, {few:,} of a chat each", [found[f"own_{few}"]]),
        _bytes("own_many", f"idle reader, {many:,} of a chat each", [found[f"own_{many}"]]),
        _bytes("bare_many", f"uvicorn and Starlette, {many:,} that only wait", [found[f"bare_{many}"]]),
        _bytes("queue_many", f"uvicorn and Starlette, {many:,} with a queue", [found[f"queue_{many}"]]),
        ratio(
            "one_to_queue",
            "idle reader of one chat / Starlette's with a queue",
            [found[f"one_{count}"] for count in (few, many)],
            [found[f"queue_{count}"] for count in (few, many)],
        ),
    ]


def _per_stream(url: str, pid: int, requests: Sequence[bytes]) -> float:
    """Bytes of a fresh process for each after the first, which stay open: nothing that they gave back is used again."""
    with Streams(url) as streams:
        streams.open(requests[:WARM], GREETED)
        time.sleep(SETTLE_SECONDS)
        before = rss_bytes(pid)
        streams.open(requests[WARM:], GREETED)
        time.sleep(SETTLE_SECONDS)
        return (rss_bytes(pid) - before) / (len(requests) - WARM)


async def _chats(stack: ExitStack, directory: Path, count: int, active: int) -> list[Figure]:
    """Chats in the store, what they make it do, and chats that run in a worker."""
    fleet = opened_fleet(stack, directory)
    web, worker = await fleet.web(limits=LIMITS), await fleet.worker(limits=LIMITS)
    with redis.Redis.from_url(fleet.store.url) as store:
        await _talk(web, [f"warm-{number}" for number in range(WARM)], "demo/echo?rate=0")
        await _at_rest(store)
        idle_rate = _commands_per_second(store)
        progress(f"memory: {count:,} chats come to rest")
        before = store.info("memory")["used_memory"]
        names = [f"rest-{number}" for number in range(count)]
        await _talk(web, names, "demo/echo?rate=0")
        await _at_rest(store)
        in_store = (store.info("memory")["used_memory"] - before) / count
        of_keys = _keys_bytes(store, names[: min(count, 500)])
        progress(f"memory: {count:,} chats at rest")
        rest_rate = _commands_per_second(store)
        watched, commands_per_read = _watched(store, web, names)
        progress(f"memory: {active} chats run")
        running = await _active(store, web, worker, active)
    return [
        _bytes("chat_store", f"chat at rest in the store, one of {count:,}", [in_store]),
        _bytes("chat_keys", "its keys and values alone (MEMORY USAGE)", [of_keys]),
        figure(
            "rest_commands",
            f"commands a second of the store, {count:,} at rest less none",
            [max(0.0, rest_rate - idle_rate)],
            "/s",
            bar=1.0,
            note=f"{idle_rate:.1f} without chats, {rest_rate:.1f} with; bar: what the seconds' edges may bring",
        ),
        figure("watched_gets", "GETs for a watched chat in 20 s", [watched], "", bar=1.1),
        figure("watched_pipelined", "commands to a read of the store's socket", [commands_per_read], "", at_most=False),
        _bytes("chat_active", f"chat that runs, in its worker, one of {active}", [running]),
    ]


async def _talk(web: Process, chat_ids: Sequence[str], model: str) -> None:
    """A question to each; accepted, not answered, when this returns."""
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def post(client: httpx2.AsyncClient, chat_id: str) -> None:
        async with limiter:
            body = user_message("a", "What is a lease?", params={"model": model})
            answer = await client.post(f"{web.url}/v1/chats/{chat_id}/commands", json=body)
            assert answer.status_code == 202, answer.text

    async with httpx2.AsyncClient(timeout=60) as client, anyio.create_task_group() as tasks:
        for chat_id in chat_ids:
            tasks.start_soon(post, client, chat_id)


async def _at_rest(store: redis.Redis) -> None:
    """Wait until no worker owns a chat."""
    with anyio.fail_after(600):
        while _owned(store) or _due(store):  # noqa: ASYNC110 - another process brings it about
            await anyio.sleep(0.2)
    await anyio.sleep(SETTLE_SECONDS)


def _due(store: redis.Redis) -> int:
    return sum(store.zcard(Keys(16).due(bucket)) for bucket in range(16))


def _owned(store: redis.Redis) -> int:
    return sum(store.hlen(Keys(16).own(bucket)) for bucket in range(16))


def _commands(store: redis.Redis) -> dict[str, int]:
    stats = store.info("commandstats")
    return {name: each["calls"] for name, each in stats.items() if name not in ("cmdstat_info", "cmdstat_ping")}


def _commands_per_second(store: redis.Redis, seconds: float = 10.0) -> float:
    before = sum(_commands(store).values())
    time.sleep(seconds)
    return (sum(_commands(store).values()) - before) / seconds


def _keys_bytes(store: redis.Redis, chat_ids: Sequence[str]) -> float:
    total = 0
    for chat_id in chat_ids:
        keys = Keys(16).chat(chat_id)
        for key in (keys.log, keys.head, keys.snap, keys.inbox, keys.meta, keys.blobs, keys.seen, keys.seen_old):
            total += store.memory_usage(key, samples=0) or 0
    return total / len(chat_ids)


def _watched(store: redis.Redis, web: Process, chat_ids: Sequence[str]) -> tuple[float, float]:
    """GETs per chat and 20 s; commands that the store read at a time meanwhile."""
    with Streams(web.url) as streams:
        streams.open(get(f"/v1/chats/subscribe?chat_id={chat_id}") for chat_id in chat_ids)
        time.sleep(WATCH_SECONDS)  # the first comparison comes at different times
        gets, reads = _commands(store).get("cmdstat_get", 0), store.info("stats")["total_reads_processed"]
        began = time.monotonic()
        time.sleep(2 * WATCH_SECONDS)
        passed = time.monotonic() - began
        gets = _commands(store).get("cmdstat_get", 0) - gets
        reads = store.info("stats")["total_reads_processed"] - reads
    return gets / len(chat_ids) / (passed / WATCH_SECONDS), gets / reads


async def _active(store: redis.Redis, web: Process, worker: Process, count: int) -> float:
    """Bytes of the worker for each chat that runs."""
    await _talk(web, [f"before-{number}" for number in range(count // 4)], HUNG)
    await anyio.sleep(3 * SETTLE_SECONDS)
    before = rss_bytes(worker.pid)
    await _talk(web, [f"active-{number}" for number in range(count)], HUNG)
    with anyio.fail_after(120):
        while _owned(store) < count + count // 4:  # noqa: ASYNC110 - as above
            await anyio.sleep(0.2)
    await anyio.sleep(3 * SETTLE_SECONDS)
    return (rss_bytes(worker.pid) - before) / count


def _bytes(key: str, what: str, values: Sequence[float], bar: float | None = None) -> Figure:
    return figure(key, what, [value / 1_000 for value in values], "kB", bar=None if bar is None else bar / 1_000)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--small", action="store_true", help="a tenth of the numbers")
    section = measure(parser.parse_args().small)
    progress("")
    print(table(section))
    sys.exit(any(each.holds is False for each in section.figures))
