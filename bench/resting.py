"""Measures the memory of chats at rest and of running chats, and the store commands that chats at rest cause.

It is part of `bench.memory` and uses its own store. The store's MONITOR shows every command with its arguments,
including the commands of scripts, so the commands that name chats at rest can be counted. Workers sweep at random
intervals, so a few such commands would not show in the total number of commands; the total is reported, too. A running
chat is measured in a worker in which no chat has ended, because the worker would reuse the memory of ended chats.
"""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import anyio
import httpx2
import redis
from tests.support.fleet import Fleet, fleet_on_new_store
from tests.support.server import Process, user_message

from bench.figures import Figure, figure, progress
from bench.processes import rss_bytes
from bench.streams import Streams, get
from threadcast.settings.limits import Limits
from threadcast.store.redis.keys import Keys

__all__ = ["ECHO", "at_rest", "chat_figures", "compacted", "limits", "talk"]


def limits(compact_after_seconds: float) -> dict[str, str]:
    """Return the limits of all processes. Versions without the last limit compact each log when it is released."""
    given = {"STREAMS_PER_PRINCIPAL": "20000", "WORKER_MAX_CHATS": "2000", "RUNS_PER_PRINCIPAL": "2000"}
    if "compact_after_seconds" in Limits.__struct_fields__:
        given["COMPACT_AFTER_SECONDS"] = str(compact_after_seconds)
    return given


WARM = 300
"""The number of chats that come to rest before the measurement."""

ECHO = "demo/echo?rate=0"
HUNG = "demo/hang?after=20&rate=0"
"""A model that writes twenty words and then hangs, so that its chat runs and uses no CPU time."""

WATCH_SECONDS = 20.0
"""The interval at which a watched chat at rest is compared with the store."""

SETTLE_SECONDS = 1.0
AT_ONCE = 32
REST_SECONDS = 600.0
"""Time limit for all chats to come to rest on a busy machine."""


class Heard(NamedTuple):
    """The output of MONITOR: the commands a second, and the number of commands that named a chat at rest."""

    per_second: float
    named: int


async def chat_figures(stack: ExitStack, directory: Path, count: int, active: int) -> list[Figure]:
    """Measure `count` chats at rest, then `active` running chats."""
    fleet = stack.enter_context(fleet_on_new_store(directory, limits=limits(0)))
    web, worker = await fleet.add_web(), await fleet.add_worker()
    with redis.Redis.from_url(fleet.store.url) as store:
        await talk(web, [f"warm-{number}" for number in range(WARM)], ECHO)
        await compacted(store)
        alone = _heard(fleet.store.url)
        progress(f"memory: {count:,} chats come to rest")
        before = store.info("memory")["used_memory"]
        names = [f"rest-{number}" for number in range(count)]
        await talk(web, names, ECHO)
        await compacted(store)
        in_store = (store.info("memory")["used_memory"] - before) / count
        of_keys = _keys_bytes(store, names[: min(count, 500)])
        progress(f"memory: {count:,} chats at rest")
        resting = _heard(fleet.store.url)
        progress(f"memory: {count:,} chats are watched")
        watched, commands_per_read = _watched(store, web, names)
        await worker.stop()
        progress(f"memory: {active} chats run")
        running = await _running(fleet, store, web, active)
    return [
        figure("chat_store", f"chat at rest in the store, one of {count:,}", [in_store / 1_000], "kB"),
        figure("chat_keys", "its keys and values alone (MEMORY USAGE)", [of_keys / 1_000], "kB"),
        figure(
            "rest_named",
            f"commands that name one of {count:,} chats at rest, in {WATCH_SECONDS:.0f} s",
            [resting.named],
            "",
            bar=0.0,
            note=f"{alone.per_second:.0f} commands a second in all without them, {resting.per_second:.0f} with",
        ),
        figure("watched_gets", f"GETs for a watched chat in {WATCH_SECONDS:.0f} s", [watched], "", bar=1.1),
        figure(
            "watched_pipelined", "commands in each read of the store's socket", [commands_per_read], "", at_most=False
        ),
        figure("chat_active", f"running chat, in its worker, one of {active}", [running / 1_000], "kB"),
    ]


async def talk(
    web: Process,
    chat_ids: Sequence[str],
    model: str,
    question: str = "What is a lease?",
    new_id: Callable[[], str] = lambda: "a",
) -> None:
    """Post a question to each chat. Returns when all are accepted, which is before they are answered. Post again, as
    clients do, if the server has just closed a reused connection, which happens after five idle seconds."""
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def post(client: httpx2.AsyncClient, chat_id: str) -> None:
        async with limiter:
            body = user_message(new_id(), question, params={"model": model})
            try:
                answer = await client.post(f"{web.url}/v1/chats/{chat_id}/commands", json=body)
            except httpx2.TransportError:
                answer = await client.post(f"{web.url}/v1/chats/{chat_id}/commands", json=body)
            assert answer.status_code in (200, 202), answer.text

    async with httpx2.AsyncClient(timeout=60) as client, anyio.create_task_group() as tasks:
        for chat_id in chat_ids:
            tasks.start_soon(post, client, chat_id)


async def at_rest(store: redis.Redis, settle_seconds: float = SETTLE_SECONDS) -> None:
    """Wait until no worker owns a chat, and none is due."""
    await _until(lambda: _owned(store) or _count(store, "due"), settle_seconds)


async def compacted(store: redis.Redis, settle_seconds: float = SETTLE_SECONDS) -> None:
    """Wait until all chats are at rest, and their logs are compacted."""
    await _until(lambda: _owned(store) or _count(store, "due") or _count(store, "rests"), settle_seconds)


async def _until(others: Callable[[], int], settle_seconds: float) -> None:
    with anyio.fail_after(REST_SECONDS):
        while others():  # noqa: ASYNC110 - another process brings it about
            await anyio.sleep(min(settle_seconds, 0.2))
    await anyio.sleep(settle_seconds)


def _count(store: redis.Redis, name: str) -> int:
    """Return the chats in a sorted set of all buckets, which older versions may lack."""
    return sum(store.zcard(Keys(16).due(bucket).removesuffix(b"due") + name.encode()) for bucket in range(16))


def _owned(store: redis.Redis) -> int:
    return sum(store.hlen(Keys(16).own(bucket)) for bucket in range(16))


def _heard(url: str) -> Heard:
    """Read MONITOR for `WATCH_SECONDS`."""
    total = named = 0
    with redis.Redis.from_url(url, socket_timeout=5) as listening, listening.monitor() as monitor:
        began_at = time.monotonic()
        while time.monotonic() - began_at < WATCH_SECONDS:  # workers sweep, so another command comes soon
            total += 1
            named += bool(re.search(r"\brest-\d", monitor.next_command()["command"]))
        return Heard(total / (time.monotonic() - began_at), named)


def _keys_bytes(store: redis.Redis, chat_ids: Sequence[str]) -> float:
    total = 0
    for chat_id in chat_ids:
        keys = Keys(16).chat(chat_id)
        for key in (keys.log, keys.head, keys.snap, keys.inbox, keys.meta, keys.blobs, keys.seen, keys.seen_old):
            total += store.memory_usage(key, samples=0) or 0
    return total / len(chat_ids)


def _watched(store: redis.Redis, web: Process, chat_ids: Sequence[str]) -> tuple[float, float]:
    """Return the GETs for each chat in 20 s, and the commands in each read of the store's socket meanwhile."""
    with Streams(web.url) as streams:
        streams.open(get(f"/v1/chats/subscribe?chat_id={chat_id}") for chat_id in chat_ids)
        time.sleep(WATCH_SECONDS)  # the first comparisons are at different times
        gets, reads = _gets(store), store.info("stats")["total_reads_processed"]
        began_at = time.monotonic()
        time.sleep(WATCH_SECONDS)
        passed = time.monotonic() - began_at
        gets = _gets(store) - gets
        reads = store.info("stats")["total_reads_processed"] - reads
    return gets / len(chat_ids) / (passed / WATCH_SECONDS), gets / reads


def _gets(store: redis.Redis) -> int:
    stats = store.info("commandstats").get("cmdstat_get", {"calls": 0})
    return int(stats["calls"])


async def _running(fleet: Fleet, store: redis.Redis, web: Process, count: int) -> float:
    """Return the bytes that each running chat adds to a new worker, after the first ones. Raises AssertionError if one
    of the chats ends before the measurement."""
    worker = await fleet.add_worker()
    await _run_for_ever(store, web, [f"before-{number}" for number in range(count // 2)], count // 2)
    before = rss_bytes(worker.pid)
    await _run_for_ever(store, web, [f"active-{number}" for number in range(count)], count // 2 + count)
    per_chat = (rss_bytes(worker.pid) - before) / count
    assert _owned(store) == count // 2 + count, "a chat has ended that should run without end"
    return per_chat


async def _run_for_ever(store: redis.Redis, web: Process, chat_ids: Sequence[str], owned: int) -> None:
    await talk(web, chat_ids, HUNG)
    with anyio.fail_after(120):
        while _owned(store) < owned:  # noqa: ASYNC110 - as above
            await anyio.sleep(0.2)
    await anyio.sleep(3 * SETTLE_SECONDS)  # its words are written, and the compression for the store has ended
