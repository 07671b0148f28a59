"""Measures durable agents: the memory of parked agents, the cost of a step, and the replay of a journal.

- **Parked**: 1,000 chats whose agents wait in `ctx.ask` or `ctx.sleep`, beside 1,000 chats at rest with the same
  messages, each kind in a new worker. The figures are the number of chats that the worker still owns, the memory of the
  folded state (a worker may keep nothing else of a released chat), and the growth of the worker's private memory, which
  depends on when the garbage collector runs.
- **Steps**: the CPU time of the worker over a run, divided by its steps, and the entries that the run adds to the log.
- **Replay**: the CPU time from the function's start until it reaches its question again, measured in this process with
  the real execution on a folded state; and, over HTTP, the time from a person's reply until the next question.

To repeat: `python -m bench.agents [--small]`.
"""

import argparse
import asyncio
import gc
import json
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import httpx2
import redis
from tests.ports import free_port
from tests.support.fleet import Fleet, fleet_on_new_store
from tests.support.server import Process, user_message

from bench import agents_app
from bench.figures import Figure, Section, announce, figure, progress, table
from bench.processes import cpu_seconds, rss_bytes
from bench.replays import replays
from bench.resting import compacted
from threadcast.chat.entry_codec import decode_state
from threadcast.chat.entry_fold import fold_entry
from threadcast.chat.owner_state import OwnerState, empty_owner_state
from threadcast.store.redis.keys import Keys
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["measure"]

APP = Path(agents_app.__file__)
LIMITS = {
    "STREAMS_PER_PRINCIPAL": "20000",
    "WORKER_MAX_CHATS": "2000",
    "RUNS_PER_PRINCIPAL": "20000",
}

KINDS = {"rests": "at rest", "asks": "parked in ctx.ask", "sleeps": "parked in ctx.sleep"}
STEP_KINDS = {
    "safe": "a safe step",
    "once": "a step that runs once",
    "thread": "a safe step of a sync function, in a thread",
}

PARKED_MAX_BYTES = 8_000
STEP_MAX_MS = {"safe": 1.0, "once": 1.0, "thread": None}
REPLAY_MAX_MS = 50.0
APPENDS = {"safe": 1.0, "once": 2.0, "thread": 1.0}

STEPS_COUNT = 500
REPLAYED_COUNT = 1_000
WARM = 1_000
"""The chats that come to rest before the measurement: until then the worker's memory grows with each chat, of whatever
kind, because the garbage collector rarely runs. Afterwards the memory grows by the folded states that the worker
caches (`StateCache`)."""

FOLDED_COUNT = 200
AT_ONCE = 32
SETTLE_SECONDS = 1.0
PAUSE_SECONDS = 0.1
"""The pause before each reply, in which the worker ends the waiting function and releases the chat."""

WAIT_SECONDS = 600.0


class Parked(NamedTuple):
    """The bytes that each chat of a kind adds to its worker, the bytes of its folded state, and the numbers of chats
    that are owned and due."""

    bytes: float
    state_bytes: float
    owned: int
    due: int


class Reply(NamedTuple):
    """The time from a person's reply until the next question, and the worker's CPU time meanwhile."""

    seconds: float
    cpu_seconds: float


def measure(small: bool) -> Section:
    """Measure the row `agents`; `small` parks 300 chats of each kind."""
    announce("agents", 60 if small else 150)
    parked_count, runs, replies = (300, 3, 10) if small else (1_000, 5, 30)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        figures += asyncio.run(_steps(stack, Path(directory), runs, replies))
    progress("agents: replay in this process")
    for count in (REPLAYED_COUNT, 10 * REPLAYED_COUNT):
        values = asyncio.run(replays(count - 1, 5 if small else 15))
        bar = REPLAY_MAX_MS * count / REPLAYED_COUNT
        figures.append(
            figure(f"replay_{count}", f"CPU time of a replay of {count:,} operations", values, "ms", bar=bar)
        )
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        figures += asyncio.run(_parked(stack, Path(directory), parked_count))
    progress("")
    return Section("agents", "durable agents", f"python -m bench.agents{' --small' * small}", figures)


# Parked agents.


async def _parked(stack: ExitStack, directory: Path, count: int) -> list[Figure]:
    fleet = stack.enter_context(fleet_on_new_store(directory, "--app", str(APP), limits=LIMITS))
    web = await fleet.add_web()
    found: dict[str, Parked] = {}
    for mode, what in KINDS.items():
        progress(f"agents: {count:,} chats {what}")
        found[mode] = await _park(fleet, web, mode, count)
    figures = [
        figure(f"{mode}_bytes", f"memory of the worker for a chat {what}", [found[mode].bytes / 1_000], "kB")
        for mode, what in KINDS.items()
    ]
    figures += [
        figure(f"{mode}_state", f"folded state of a chat {what}", [found[mode].state_bytes / 1_000], "kB")
        for mode, what in KINDS.items()
    ]
    for mode in ("asks", "sleeps"):
        beyond = (found[mode].state_bytes - found["rests"].state_bytes) / 1_000
        figures += [
            figure(
                f"{mode}_beyond",
                f"folded state of a chat {KINDS[mode]}, beyond its chat",
                [beyond],
                "kB",
                bar=PARKED_MAX_BYTES / 1_000,
            ),
            figure(
                f"{mode}_owned",
                f"chats that the worker holds of {count:,} {KINDS[mode]}",
                [found[mode].owned],
                "",
                bar=0.0,
            ),
            figure(f"{mode}_due", f"chats that are due of {count:,} {KINDS[mode]}", [found[mode].due], "", bar=0.0),
        ]
    return figures


async def _park(fleet: Fleet, web: Process, mode: str, count: int) -> Parked:
    """Park chats in a new worker, and measure the memory that they occupy and whether they are released."""
    port = free_port()
    worker = await fleet.start("worker", metrics_port=port).ready()
    with redis.Redis.from_url(fleet.store.url) as store:
        await _ask(web, [f"{mode}-warm-{number}" for number in range(WARM)], mode)
        await _until_released(store, fleet)
        before = rss_bytes(worker.pid)
        chat_ids = [f"{mode}-{number}" for number in range(count)]
        await _ask(web, chat_ids, mode)
        await _until_released(store, fleet)
        after = rss_bytes(worker.pid)
        async with httpx2.AsyncClient(timeout=60) as client:
            metrics = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
            for chat_id in (*chat_ids[:: max(1, count // 10)], chat_ids[-1]):
                chat = (await client.get(f"{web.url}/v1/chats/{chat_id}")).json()
                wanted = {"rests": "idle", "asks": "paused", "sleeps": "executing_tools"}[mode]
                assert chat["runtime"]["state"] == wanted, f"{chat_id} is {chat['runtime']['state']}, not {wanted}"
                assert len(chat["messages"]) == 2, chat["messages"]
        [active] = [line for line in metrics.splitlines() if line.startswith("threadcast_chats_active ")]
        owned = max(_owned(store), int(float(active.rpartition(" ")[2])))
        due = _due(store)
    assert await worker.stop() == 0
    return Parked((after - before) / count, await _state_bytes(fleet.store.url, chat_ids[:FOLDED_COUNT]), owned, due)


async def _state_bytes(store_url: str, chat_ids: Sequence[str]) -> float:
    """Fold the logs of chats as a worker does. Returns the bytes of each state."""
    async with RedisStore(store_url) as store:
        logs = [(chat_id, await store.load(chat_id)) for chat_id in chat_ids]
    states: list[OwnerState] = []
    gc.collect()
    tracemalloc.start()
    try:
        for chat_id, loaded in logs:
            state = decode_state(loaded.checkpoint[2]) if loaded.checkpoint else empty_owner_state(chat_id)
            for entry in loaded.entries:
                state, _ = fold_entry(state, entry, with_facts=True)
            states.append(state)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / len(states)
    finally:
        tracemalloc.stop()


async def _ask(web: Process, chat_ids: Sequence[str], mode: str, text: str = "What is a lease?") -> None:
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def post(client: httpx2.AsyncClient, chat_id: str) -> None:
        async with limiter:
            body = user_message("a", text, params={"mode": mode})
            try:
                answer = await client.post(f"{web.url}/v1/chats/{chat_id}/commands", json=body)
            except httpx2.TransportError:  # a kept connection was just closed
                answer = await client.post(f"{web.url}/v1/chats/{chat_id}/commands", json=body)
            assert answer.status_code in (200, 202), answer.text

    async with httpx2.AsyncClient(timeout=60) as client, anyio.create_task_group() as tasks:
        for chat_id in chat_ids:
            tasks.start_soon(post, client, chat_id)


async def _until_released(store: redis.Redis, fleet: Fleet) -> None:
    """Wait until no worker owns a chat, and no chat is due."""
    with anyio.fail_after(WAIT_SECONDS):
        while _owned(store) or _due(store):  # noqa: ASYNC110 - another process brings it about
            await anyio.sleep(0.2)
    await anyio.sleep(SETTLE_SECONDS)


def _owned(store: redis.Redis) -> int:
    return sum(int(store.hlen(Keys(16).own(bucket))) for bucket in range(16))


def _due(store: redis.Redis) -> int:
    """Return the number of chats that a worker should take now. Sleeping chats are due later."""
    now_ms = time.time() * 1_000
    return sum(int(store.zcount(Keys(16).due(bucket), "-inf", now_ms)) for bucket in range(16))


# Steps, and replies over HTTP.


async def _steps(stack: ExitStack, directory: Path, runs: int, replies: int) -> list[Figure]:
    fleet = stack.enter_context(fleet_on_new_store(directory, "--app", str(APP), limits=LIMITS))
    web = await fleet.add_web()
    worker = await fleet.start("worker").ready()
    figures: list[Figure] = []
    with redis.Redis.from_url(fleet.store.url) as store:
        for kind, what in STEP_KINDS.items():
            progress(f"agents: {what}")
            await _cost(store, web, worker, f"{kind}-warm", kind)
            costs = [await _cost(store, web, worker, f"{kind}-{number}", kind) for number in range(runs)]
            figures += [
                figure(
                    f"{kind}_cpu",
                    f"CPU time of the worker for {what}",
                    [cpu for cpu, _ in costs],
                    "ms",
                    bar=STEP_MAX_MS[kind],
                ),
                figure(
                    f"{kind}_appends",
                    f"entries of the log for {what}",
                    [entries for _, entries in costs],
                    "",
                    bar=APPENDS[kind] + 0.02,
                    note="with those of the run's begin and end",
                ),
            ]
    progress("agents: replies over HTTP")
    found = await _replies(web, worker, (0, REPLAYED_COUNT), replies)
    waits = {steps: [each.seconds * 1_000 for each in those] for steps, those in found.items()}
    cpu = {steps: [each.cpu_seconds * 1_000 for each in those] for steps, those in found.items()}
    more = f"{REPLAYED_COUNT:,} recorded operations"
    return [
        *figures,
        figure("reply_none", "a reply until the next question, without recorded operations", waits[0], "ms"),
        figure("reply_many", f"a reply until the next question, with {more}", waits[REPLAYED_COUNT], "ms"),
        figure("reply_beyond", f"what {more} add, by wall-clock time", _beyond(waits), "ms", bar=REPLAY_MAX_MS),
        figure("reply_cpu", f"what {more} add, by the worker's CPU time", _beyond(cpu), "ms", bar=REPLAY_MAX_MS),
    ]


def _beyond(values: dict[int, list[float]]) -> list[float]:
    """Return the differences of values that were measured one after the other."""
    return [many - none for none, many in zip(values[0], values[REPLAYED_COUNT], strict=True)]


async def _cost(store: redis.Redis, web: Process, worker: Process, chat_id: str, kind: str) -> tuple[float, float]:
    """Run an agent of `STEPS_COUNT` steps. Returns the milliseconds of CPU time and the entries for each step. Waits
    until the log is compacted, whose cost `bench.turns` measures."""
    began = cpu_seconds(worker.pid)
    async with _frames(web, chat_id) as frames:
        await _ask(web, [chat_id], "steps", f"{STEPS_COUNT} {kind}")
        async for frame in frames:
            if frame.get("outcome"):
                assert frame["outcome"] == "complete", frame
                break
    cpu = cpu_seconds(worker.pid) - began
    info: dict[str, int] = store.xinfo_stream(Keys(16).chat(chat_id).log)
    await compacted(store, PAUSE_SECONDS)
    return cpu * 1_000 / STEPS_COUNT, info["entries-added"] / STEPS_COUNT


async def _replies(web: Process, worker: Process, steps_counts: Sequence[int], count: int) -> dict[int, list[Reply]]:
    """Reply repeatedly and in turn to agents that have made these numbers of steps. Returns, for each number of steps,
    the wall-clock and CPU times from each reply until the next question."""
    found: dict[int, list[Reply]] = {steps: [] for steps in steps_counts}
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx2.AsyncClient(timeout=60))
        readers = {steps: await stack.enter_async_context(_frames(web, f"replies-{steps}")) for steps in steps_counts}
        questions: dict[int, JsonObject] = {}
        for steps, frames in readers.items():
            await _ask(web, [f"replies-{steps}"], "questions", str(steps))
            questions[steps] = await _question(frames)
        for number in range(count + 1):
            for steps, frames in readers.items():
                body = {"type": "tool_decisions", "client_request_id": f"d{number}", "decisions": [questions[steps]]}
                await anyio.sleep(PAUSE_SECONDS)
                began, cpu = time.monotonic(), cpu_seconds(worker.pid)
                answer = await client.post(f"{web.url}/v1/chats/replies-{steps}/commands", json=body)
                assert answer.status_code in (200, 202), answer.text
                questions[steps] = await _question(frames)
                if number:
                    found[steps].append(Reply(time.monotonic() - began, cpu_seconds(worker.pid) - cpu))
    return found


async def _question(frames: AsyncIterator[JsonObject]) -> JsonObject:
    """Wait for the next question, and return the decision that answers it."""
    async for frame in frames:
        if frame.get("type") == "pause_required":
            [reason] = frame["reasons"]
            answer = {"accepted": True, "edited_input": {"answer": "yes"}}
            return {"tool_call_id": reason["tool_call_id"], "input_hash": reason["input_hash"], **answer}
    raise AssertionError("the stream ended before the question")


@asynccontextmanager
async def _frames(web: Process, chat_id: str) -> AsyncIterator[AsyncIterator[JsonObject]]:
    """Open the stream of a chat for the block, and yield its events."""
    async with (
        httpx2.AsyncClient(timeout=httpx2.Timeout(60)) as client,
        client.stream("GET", f"{web.url}/v1/chats/subscribe?chat_id={chat_id}") as answer,
    ):
        lines = answer.aiter_lines()

        async def frames() -> AsyncIterator[JsonObject]:
            async for line in lines:
                if line.startswith("data: "):
                    yield json.loads(line[6:])

        async for line in lines:  # the snapshot
            if line.startswith("data: "):
                break
        yield frames()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.agents", description=__doc__)
    parser.add_argument("--small", action="store_true", help="park 300 chats of each kind")
    section = measure(parser.parse_args().small)
    progress("")
    print(table(section))
    sys.exit(any(each.holds is False for each in section.figures))
