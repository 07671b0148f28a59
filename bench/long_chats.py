"""Measures the cost of a turn in a long chat: the worker's CPU time, the wait for the first delta, and the delay of
other chats (the neighbours).

Chats of 10, 1,000 and 10,000 messages are imported, and an instant model answers one question after the other in each.
The worker's CPU time of a turn is compared with the floor: encoding a request of the same size with msgspec and sending
it to the same model server from bare asyncio. The difference, minus the same difference in the shortest chat, is the
cost of the chat's length. Finally 50 neighbours stream, in pairs of windows: one window without the long chats, and one
while long chats take turns. To repeat: `python -m bench.long_chats [--small]`.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx2
import msgspec
import uvloop
from tests.support.server import user_message

from bench.figures import Figure, Section, figure, progress, ratio, table
from bench.join import export_of
from bench.model_server import STAMP, ModelServer, model_server
from bench.processes import cpu_seconds
from bench.readers import opened_readers
from bench.tokens import ENDLESS, Running, post_all, running, wait_for

__all__ = ["measure"]

LENGTHS = (10, 1_000, 10_000)
LONGEST = max(LENGTHS)

TURNS, TURNS_SMALL = 10, 5
"""The number of consecutive turns whose CPU time is measured together."""

ROUNDS, ROUNDS_SMALL = 5, 3

OURS_MAX_MS = 5.0
"""The worker's CPU time for the length of the longest chat, beyond encoding and sending the request (DESIGN §13)."""

FIRST_DELTA_MAX_MS = 15.0
"""The allowed time from a command to the first delta of an instant model, at the median (DESIGN §13)."""

NEIGHBOURS = 50
NEIGHBOURS_MAX = 1.1
"""The limit: the neighbours' p99 while long chats take turns, divided by the p99 without long chats (DESIGN §13)."""

LONG_CHATS = 4
TURN_EVERY_SECONDS = 0.25
"""The pause between two turns while the neighbours stream: four long chats, one after the other, take four turns a
second."""

WINDOWS, WINDOW_SECONDS = 6, 3.0
WINDOWS_SMALL, WINDOW_SMALL_SECONDS = 3, 2.0

REST_SECONDS = 0.3
"""The time after a turn in which the chat is released and its trace is stored."""

ANSWER_SECONDS = 30.0


class _Watched:
    """A chat with one reader. The object posts the chat's messages and records the milliseconds to each first delta."""

    def __init__(self, url: str, chat_id: str) -> None:
        self._url = url
        self._chat_id = chat_id
        self._turns_count = 0
        self.first_ms: list[float] = []

    async def __aenter__(self) -> "_Watched":
        host, _, port = self._url.removeprefix("http://").rstrip("/").partition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
        self._client = httpx2.AsyncClient(timeout=ANSWER_SECONDS)
        subscribe = f"GET /v1/chats/subscribe?chat_id={self._chat_id} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        self._writer.write(subscribe.encode())
        await self._until(b"\n: hb ")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._client.aclose()

    async def turn(self) -> None:
        self._turns_count += 1
        body = user_message(f"turn-{self._turns_count}", "And who holds it?", params={"model": "openai/bench"})
        began = time.monotonic()
        posted = asyncio.create_task(self._client.post(f"{self._url}/v1/chats/{self._chat_id}/commands", json=body))
        rest = await self._until(b'"stream_delta"')
        self.first_ms.append(1_000 * (time.monotonic() - began))
        answer = await posted
        if answer.status_code != 202:
            raise SystemExit(f"a command was answered {answer.status_code}: {answer.text}")
        await self._until(b'"outcome":"complete"', rest)

    async def _until(self, wanted: bytes, seen: bytes = b"") -> bytes:
        async with asyncio.timeout(ANSWER_SECONDS):
            while wanted not in seen:
                more = await self._reader.read(1 << 20)
                if not more:
                    raise SystemExit(f"a stream ended before {wanted.decode()}")
                seen = seen[-len(wanted) :] + more
        return seen[seen.index(wanted) :]


async def _import(url: str, chat_id: str, length: int) -> None:
    async with httpx2.AsyncClient(timeout=ANSWER_SECONDS) as client:
        answer = await client.post(f"{url}/v1/chats/import", content=export_of(chat_id, length)[0])
        if answer.json().get("imported") != [chat_id]:
            raise SystemExit(f"the import was answered {answer.status_code}: {answer.text}")


async def _turns(server: Running, chat_id: str, *, small: bool) -> tuple[dict[str, list[float]], list[float]]:
    """Return the CPU milliseconds of a turn for each process, and the milliseconds to the first deltas."""
    count = TURNS_SMALL if small else TURNS
    cpu: dict[str, list[float]] = {name: [] for name in server.pids}
    async with _Watched(server.url, chat_id) as chat:
        await chat.turn()  # loads the chat
        await chat.turn()
        chat.first_ms.clear()
        for _ in range(ROUNDS_SMALL if small else ROUNDS):
            await asyncio.sleep(REST_SECONDS)
            before = {name: cpu_seconds(pid) for name, pid in server.pids.items()}
            for _ in range(count):
                await chat.turn()
            await asyncio.sleep(REST_SECONDS)
            for name, pid in server.pids.items():
                cpu[name].append((cpu_seconds(pid) - before[name]) * 1_000 / count)
    return cpu, chat.first_ms


async def _floor(models: ModelServer, length: int, asked_bytes: int, *, small: bool) -> list[float]:
    """Return the CPU milliseconds to encode a request of this size and to send it."""
    messages = [{"role": each.role, "content": each.content} for each in export_of("floor", length)[1]]
    body = {"model": "bench", "messages": messages, "stream": True}
    missing = asked_bytes - len(msgspec.json.encode(body))
    messages.append({"role": "user", "content": "x" * max(0, missing)})  # system prompt, tools, and turns so far
    host, _, port = models.url.removeprefix("http://").partition("/")[0].partition(":")
    found = []
    reader, writer = await asyncio.open_connection(host, int(port))
    for _ in range(ROUNDS_SMALL if small else ROUNDS):
        began = time.process_time()
        for _ in range(TURNS):
            data = msgspec.json.encode(body)
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data))
            writer.write(data)
            while not (await reader.read(65_536)).endswith(b"\r\n0\r\n\r\n"):
                pass
        found.append((time.process_time() - began) * 1_000 / TURNS)
    writer.close()
    return found


def _lengths(server: Running, models: ModelServer, *, small: bool) -> list[Figure]:
    figures: list[Figure] = []
    short: list[float] = []
    for length in LENGTHS:
        of = f"{length:,} messages"
        progress(f"long_chats: {of}")
        anyio.run(_import, server.url, f"long-{length}", length)
        cpu, first_ms = uvloop.run(_turns(server, f"long-{length}", small=small))
        floor = uvloop.run(_floor(models, length, asked_bytes := models.asked_bytes(), small=small))
        turn = cpu["worker"]
        ours = [max(0.0, a - b) for a, b in zip(turn, floor, strict=True)]
        short = short or ours
        figures += [
            figure(f"{length}.turn", f"{of}: worker, CPU of a turn", turn, "ms"),
            figure(f"{length}.floor", f"{of}: encoding and sending the request", floor, "ms", note=_size(asked_bytes)),
            figure(f"{length}.ours", f"{of}: worker beyond that", ours, "ms"),
            figure(f"{length}.web", f"{of}: web, CPU of a turn", cpu["web"], "ms"),
            figure(f"{length}.store", f"{of}: store, CPU of a turn", cpu["store"], "ms"),
            figure(
                f"{length}.first",
                f"{of}: command to first delta",
                first_ms,
                "ms",
                bar=FIRST_DELTA_MAX_MS if length == LONGEST else None,
            ),
        ]
        if length != LENGTHS[0]:
            figures.append(
                figure(
                    f"{length}.length",
                    f"{of}: worker beyond that and a short chat's turn",
                    [max(0.0, a - b) for a, b in zip(ours, short, strict=True)],
                    "ms",
                    bar=OURS_MAX_MS if length == LONGEST else None,
                )
            )
    return figures


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1_000:,.0f} kB"


@contextmanager
def _long_turns(chats: list[_Watched], loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let the long chats take turns for a block."""
    ends = threading.Event()

    async def take() -> None:
        number = 0
        while not ends.is_set():
            due = loop.time() + TURN_EVERY_SECONDS
            await chats[number % len(chats)].turn()
            number += 1
            await asyncio.sleep(due - loop.time())

    taking = asyncio.run_coroutine_threadsafe(take(), loop)
    try:
        yield
    finally:
        ends.set()
        taking.result(ANSWER_SECONDS)


@contextmanager
def _loop_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(ANSWER_SECONDS)


def _neighbours(server: Running, models: ModelServer, *, small: bool) -> list[Figure]:
    """Measure the age of the neighbours' tokens, alone and beside long chats."""
    for number in range(LONG_CHATS):
        anyio.run(_import, server.url, f"beside-{number}", LONGEST)
    ages: dict[bool, list[float]] = {False: [], True: []}
    medians: dict[bool, list[float]] = {False: [], True: []}
    seconds = WINDOW_SMALL_SECONDS if small else WINDOW_SECONDS
    with _loop_thread() as loop:

        def run(work: Coroutine[None, None, object]) -> None:
            asyncio.run_coroutine_threadsafe(work, loop).result(ANSWER_SECONDS)

        chats = [_Watched(server.url, f"beside-{number}") for number in range(LONG_CHATS)]
        for chat in chats:
            run(chat.__aenter__())
            run(chat.turn())
        models.answer_with(ENDLESS)
        path = "/v1/chats/subscribe?chat_id=near-%d"
        with opened_readers(server.url, path, "-m", str(NEIGHBOURS), "-t", STAMP) as readers:
            readers.open(NEIGHBOURS)
            anyio.run(post_all, server.url, [f"near-{number}" for number in range(NEIGHBOURS)])
            wait_for(lambda: models.streaming_count() >= NEIGHBOURS)
            models.answer_with(1)
            time.sleep(1.0)
            for number in range(WINDOWS_SMALL if small else WINDOWS):
                for is_beside in (False, True) if number % 2 else (True, False):
                    progress(f"long_chats: neighbours, window {number}")
                    readers.reset()
                    if is_beside:
                        with _long_turns(chats, loop):
                            time.sleep(seconds)
                    else:
                        time.sleep(seconds)
                    seen = readers.count()
                    ages[is_beside].append(seen.p99_us / 1_000)
                    medians[is_beside].append(seen.p50_us / 1_000)
            models.stop_answers()
            wait_for(lambda: not models.streaming_count())
        for chat in chats:
            run(chat.__aexit__())
    what = f"{NEIGHBOURS} neighbours, age of a token"
    return [
        figure("alone.p50", f"{what}: alone, p50", medians[False], "ms"),
        figure("beside.p50", f"{what}: beside long chats, p50", medians[True], "ms"),
        figure("alone.p99", f"{what}: alone, p99", ages[False], "ms"),
        figure("beside.p99", f"{what}: beside long chats, p99", ages[True], "ms"),
        ratio("beside", f"{what}: beside / alone, p99", ages[True], ages[False], bar=NEIGHBOURS_MAX),
    ]


def measure(small: bool) -> Section:
    """Measure the row `long_chats`."""
    with (
        tempfile.TemporaryDirectory() as directory,
        model_server() as models,
        running(Path(directory) / "turns", models.url) as server,
    ):
        figures = _lengths(server, models, small=small)
        figures += _neighbours(server, models, small=small)
    progress("")
    return Section("long_chats", "a turn in a long chat", f"python -m bench.long_chats{' --small' * small}", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.long_chats", description="Measure turns in long chats.")
    parser.add_argument("--small", action="store_true", help="measure in less time")
    print(table(measure(parser.parse_args().small)))
    sys.exit(0)
