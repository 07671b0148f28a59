"""Measures how long modest callers wait for the first token while a greedy caller floods the server with slow runs.

50 principals post a message every two seconds or so, each to a chat of its own, and read the answers of an instant
model. At first the server has no other load. Then another principal posts 2,100 messages within 15 s, each to a new
chat, and the answers take minutes. One web process, one worker and one private store run, with the default limits. The
times are wall-clock times from the first byte of a command to the first delta at the caller's stream, so the load of
other programs shows in them; quiet and flooded rounds alternate on fresh processes.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import uvloop
from tests.support.fleet import fleet_on_new_store
from tests.support.tokens import bearer, tokens

from bench.figures import Figure, Section, figure, progress, quantile, ratio, table

__all__ = ["measure"]

MODEST_COUNT = 50
PAUSE_SECONDS = 2.0
"""The mean pause of a modest caller after an answer."""

FLOOD_COUNT, FLOOD_SECONDS = 2_100, 15.0
"""The greedy caller's runs, which would fill a worker (`limits.worker_max_chats`), and the time in which they are
posted."""

MEASURED_SECONDS = FLOOD_SECONDS
"""The duration of each measurement, which equals that of the flood."""

ROUNDS, ROUNDS_SMALL = 3, 1
RATIO_MAX = 2.0
"""The limit: the median time to the first token of a modest caller during the flood, divided by the time without it."""

INSTANT = "demo/echo?rate=0"
SLOW = "demo/slow?delay=5&rate=10&words=3000"
ANSWER_SECONDS = 60.0
"""Time limit of each answer of the server."""

NAMES = [f"modest{number}" for number in range(MODEST_COUNT)]
CONFIG = tokens(greedy="turns_per_hour = 0\nturns_per_day = 0", **dict.fromkeys(NAMES, ""))


class _Caller:
    """One principal with one chat at a time: a connection for commands and one for the stream."""

    def __init__(self, url: str, name: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._authorization = bearer(name)["Authorization"]
        self.name = name

    async def __aenter__(self) -> "_Caller":
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def _head(self, line: str, *more: str) -> bytes:
        lines = (f"{line} HTTP/1.1", f"Host: {self._host}", f"Authorization: {self._authorization}", *more)
        return "\r\n".join((*lines, "", "")).encode()

    async def post(self, chat_id: str, number: int, model: str) -> None:
        """Post a message, and wait until it is accepted."""
        data = json.dumps(
            {
                "type": "user_message",
                "client_request_id": f"r{number}",
                "content": "go",
                "params": {"model": model},
            }
        ).encode()
        head = self._head(
            f"POST /v1/chats/{chat_id}/commands", f"Content-Length: {len(data)}", "Content-Type: application/json"
        )
        self._writer.write(head + data)
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = await self._reader.readuntil(b"\r\n\r\n")
            length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            text = await self._reader.readexactly(int(length.partition(b":")[2]))
        if b" 202 " not in answer[:20]:
            raise SystemExit(f"a command was answered {answer[:20]!r} {text[:200]!r}")

    async def ask_until(self, end_at: float, first_ms: list[float]) -> None:
        """Ask again and again until `end_at`, and add the milliseconds from each command to its first delta."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(self._head(f"GET /v1/chats/subscribe?chat_id={self.name}"))
            await _until(reader, b'"snapshot"')
            number = int(1_000 * time.monotonic())
            await asyncio.sleep(random.uniform(0, PAUSE_SECONDS))
            while time.monotonic() < end_at:
                number += 1
                began = time.monotonic()
                posted = asyncio.create_task(self.post(self.name, number, INSTANT))
                rest = await _until(reader, b'"stream_delta"')
                first_ms.append(1_000 * (time.monotonic() - began))
                await posted
                await _until(reader, b'"outcome":"complete"', rest)
                await asyncio.sleep(random.uniform(0.5, 1.5) * PAUSE_SECONDS)
        finally:
            writer.close()


async def _until(reader: asyncio.StreamReader, wanted: bytes, seen: bytes = b"") -> bytes:
    """Read until a text has arrived. Returns all bytes from there on."""
    async with asyncio.timeout(ANSWER_SECONDS):
        while wanted not in seen:
            more = await reader.read(65_536)
            if not more:
                raise SystemExit(f"a stream ended before {wanted.decode()}")
            seen = seen[-len(wanted) :] + more
    return seen[seen.index(wanted) :]


async def _flood(greedy: _Caller, end_at: float) -> None:
    """Post the greedy caller's runs at an even pace, the last one at `end_at`."""
    began = time.monotonic()
    for number in range(FLOOD_COUNT):
        await asyncio.sleep(began + (end_at - began) * number / FLOOD_COUNT - time.monotonic())
        await greedy.post(f"greedy-{number}", number, SLOW)


async def _first_tokens(url: str, *, flooded: bool) -> list[float]:
    """Return the milliseconds to each first token of the modest callers."""
    first_ms: list[float] = []
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(_Caller(url, name)) for name in NAMES]
        greedy = await stack.enter_async_context(_Caller(url, "greedy"))
        end_at = time.monotonic() + MEASURED_SECONDS
        async with asyncio.TaskGroup() as tasks:
            for caller in callers:
                tasks.create_task(caller.ask_until(end_at, first_ms))
            if flooded:
                tasks.create_task(_flood(greedy, end_at))
    return first_ms


async def _round() -> tuple[list[float], list[float], list[float]]:
    """Return the times to first tokens without a flood, during the flood, and after the flood while its runs are still
    open."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        config = Path(directory) / "threadcast.toml"
        config.write_text(CONFIG)
        fleet = stack.enter_context(fleet_on_new_store(Path(directory), "--config", str(config)))
        await fleet.open(workers=1)
        await _first_tokens(fleet.url, flooded=False)  # warms up
        quiet = await _first_tokens(fleet.url, flooded=False)
        flooded = await _first_tokens(fleet.url, flooded=True)
        return quiet, flooded, await _first_tokens(fleet.url, flooded=False)


def measure(small: bool) -> Section:
    """Measure the row `fairness`."""
    rounds = []
    for number in range(ROUNDS_SMALL if small else ROUNDS):
        progress(f"fairness: round {number + 1}")
        rounds.append(uvloop.run(_round()))
    progress("")
    figures: list[Figure] = []
    names = ("quiet", "flooded", "after")
    whats = ("quiet", f"while {FLOOD_COUNT} runs are posted", "while these runs are open")
    for index, (key, what) in enumerate(zip(names, whats, strict=True)):
        for share, name in ((0.5, "p50"), (0.99, "p99")):
            values = [quantile(each[index], share) for each in rounds]
            figures.append(figure(f"{key}.{name}", f"first token of a modest caller, {what}, {name}", values, "ms"))
    quiet = [quantile(each[0], 0.5) for each in rounds]
    for index in (1, 2):
        values = [quantile(each[index], 0.5) for each in rounds]
        figures.append(ratio(f"{names[index]}.ratio", f"{whats[index]} / quiet, p50", values, quiet, bar=RATIO_MAX))
    return Section("fairness", f"1 greedy and {MODEST_COUNT} modest callers", "python -m bench.fairness", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m bench.fairness", description="Measure the first token of modest callers beside a greedy one."
    )
    parser.add_argument("--small", action="store_true", help="measure in less time")
    print(table(measure(parser.parse_args().small)))
