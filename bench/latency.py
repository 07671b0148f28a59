"""Measures wall-clock times of an event and of a command, at p50 and p99.

(a) append to reader: 200 readers of one chat, 50 events a second, from the call of `append` to the bytes at each reader
(bar 10 ms); its baseline is the bare hop through the same store's pub/sub. (b) a command to its 202 (bar 10 ms); its
baseline is a bare Starlette application under uvicorn whose POST does one XADD. (c) a command to the first delta of an
instant model, at a reader of the chat (bar 30 ms). Wall-clock times on a busy machine mean little; the baselines show
how busy the machine was. To repeat: `python -m bench.latency`.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import redis.asyncio as redis
import uvloop

from bench.figures import Figure, Section, figure, progress, quantile, table
from bench.model_server import STAMP
from bench.readers import opened_readers
from bench.tokens import Running, running
from threadcast.actor.writer import Writer
from threadcast.base.telemetry import Metrics
from threadcast.store.load import fold_loaded
from threadcast.store.ports import PostRequest
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.events import StreamDelta, StreamStarted
from threadcast_protocol.wire.principal import LOCAL

__all__ = ["measure"]

READERS = 200
EVENTS_PER_SECOND = 50
EVENTS, EVENTS_SMALL = 500, 150
COMMANDS, COMMANDS_SMALL = 300, 100
ROUNDS, ROUNDS_SMALL = 3, 2

APPEND_P99_MS, COMMAND_P99_MS, FIRST_DELTA_P99_MS = 10.0, 10.0, 30.0
"""The limits in milliseconds (DESIGN §13)."""

ANSWER_SECONDS = 20.0
"""Time limit of each answer of a server."""

INSTANT = "demo/echo?rate=0"
"""A model that repeats the message at once."""


NO_MODELS = "http://127.0.0.1:9/v1"
"""An address at which no server listens; the demo models answer instead."""


class Samples:
    """The milliseconds of each repetition, in rounds."""

    def __init__(self) -> None:
        self.p50: list[float] = []
        self.p99: list[float] = []

    def add(self, values_ms: list[float]) -> None:
        self.p50.append(quantile(values_ms, 0.5))
        self.p99.append(quantile(values_ms, 0.99))

    def figures(self, key: str, what: str, bar_ms: float | None = None) -> list[Figure]:
        return [
            figure(f"{key}.p50", f"{what}, p50", self.p50, "ms"),
            figure(f"{key}.p99", f"{what}, p99", self.p99, "ms", bar=bar_ms),
        ]


# append to reader


async def _owned_writer(store: RedisStore, chat_id: str) -> Writer:
    """Create a chat with an open answer in this process, because no worker runs in this measurement."""
    await store.post(
        PostRequest(chat_id=chat_id, owner=LOCAL.id, principal=b"{}", request_id="r", digest="d", nonce="n", body=b"{}")
    )
    await store.claim(store.bucket_of(chat_id), "bench", 1, 600_000)
    taken = await store.take(chat_id, "bench", "wake")
    state = fold_loaded(chat_id, await store.load(chat_id), with_facts=True)
    writer = Writer(store, "bench", state, owner=taken.owner, new_id=lambda kind: f"{kind}-1", metrics=Metrics())
    await writer.commit(lambda builder: builder.say(StreamStarted(message_id="m")))
    return writer


async def _appends(server: Running, samples: Samples, *, small: bool, rounds: int) -> None:
    events_count = EVENTS_SMALL if small else EVENTS
    async with RedisStore(server.store_url) as store:
        writer = await _owned_writer(store, "latency")

        async def append() -> None:
            """Append one event whose text is the time of the append."""
            delta = StreamDelta("m", [AppendContent(f"{STAMP}{time.monotonic_ns()} ")])
            await writer.commit(lambda builder: builder.say(delta))

        path = "/v1/chats/subscribe?chat_id=latency"
        with opened_readers(server.url, path, "-t", STAMP) as readers:
            await asyncio.to_thread(readers.open, READERS)
            for _ in range(rounds):
                await asyncio.sleep(0.2)
                readers.reset()
                await _paced(append, events_count)
                told = await asyncio.to_thread(readers.wait, events_count)
                samples.p50.append(told.p50_us / 1_000)
                samples.p99.append(told.p99_us / 1_000)


async def _paced(work: Callable[[], Awaitable[None]], count: int) -> None:
    """Call `work` `EVENTS_PER_SECOND` times a second, `count` times in all."""
    due = time.monotonic()
    for _ in range(count):
        due += 1 / EVENTS_PER_SECOND
        await asyncio.sleep(due - time.monotonic())
        await work()


async def _bare_hop(server: Running, samples: Samples, *, small: bool, rounds: int) -> None:
    """Measure a PUBLISH to a subscriber in this process, at the same pace."""
    async with redis.Redis.from_url(server.store_url) as client, client.pubsub() as channel:
        await channel.subscribe("bench-hop")
        await channel.get_message(timeout=ANSWER_SECONDS)
        values: list[float] = []

        async def hop() -> None:
            began = time.monotonic()
            await client.publish("bench-hop", b"x" * 200)
            await channel.get_message(ignore_subscribe_messages=True, timeout=ANSWER_SECONDS)
            values.append(1_000 * (time.monotonic() - began))

        for _ in range(rounds):
            values.clear()
            await _paced(hop, EVENTS_SMALL if small else EVENTS)
            samples.add(values)


# a command to its 202


class _Client:
    """A minimal HTTP connection that posts and waits for the answer."""

    def __init__(self, url: str) -> None:
        self._host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
        self._port = int(port)

    async def __aenter__(self) -> "_Client":
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def post(self, path: str, body: object) -> float:
        """Post a command. Returns the milliseconds until the answer 202."""
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(data)}\r\n\r\n"
        began = time.monotonic()
        self._writer.write(head.encode() + data)
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = await self._reader.readuntil(b"\r\n\r\n")
        spent = time.monotonic() - began
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        text = await self._reader.readexactly(int(length.partition(b":")[2]))
        if b" 202 " not in answer[:20]:
            raise SystemExit(f"a command was answered {answer[:20]!r} {text[:200]!r}")
        return 1_000 * spent


async def _commands(url: str, samples: Samples, *, small: bool, rounds: int) -> None:
    """Measure the time until the first message of a new chat is accepted, while a worker answers the earlier messages.
    The bare application gets the same bodies."""
    async with _Client(url) as client:
        number = 0
        for _ in range(rounds):
            values = []
            for _ in range(COMMANDS_SMALL if small else COMMANDS):
                number += 1
                body = _message(number)
                values.append(await client.post(f"/v1/chats/posts-{number}/commands", body))
                await asyncio.sleep(0.01)
            samples.add(values)


def _message(number: int) -> dict[str, object]:
    """Return a command that an instant model answers."""
    params = {"model": INSTANT}
    return {"type": "user_message", "client_request_id": f"r{number}", "content": "go", "params": params}


@contextmanager
def _bare_app(store_url: str) -> Iterator[str]:
    """Run the bare Starlette application under uvicorn in its own process for a block. Yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = [sys.executable, "-m", "uvicorn", "bench.bare_post:app", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(arguments, env={**os.environ, "BENCH_STORE_URL": store_url})
    try:
        give_up_at = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < give_up_at:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        else:
            raise SystemExit(f"the bare application did not listen within {ANSWER_SECONDS} s; its output is above")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


# a command to the first delta


async def _first_deltas(url: str, samples: Samples, *, small: bool, rounds: int) -> None:
    """Measure the time from a command to its first delta. Only one chat is open at a time, with one reader."""
    async with _Client(url) as client, _Client(url) as watching:
        reader, writer = watching._reader, watching._writer
        writer.write(b"GET /v1/chats/subscribe?chat_id=firsts HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await _until(reader, b'"snapshot"')
        number = 0
        for _ in range(rounds):
            values = []
            for _ in range(COMMANDS_SMALL if small else COMMANDS):
                number += 1
                body = _message(number)
                began = time.monotonic()
                posted = asyncio.create_task(client.post("/v1/chats/firsts/commands", body))
                rest = await _until(reader, b'"stream_delta"')
                values.append(1_000 * (time.monotonic() - began))
                await posted
                await _until(reader, b'"outcome":"complete"', rest)
            samples.add(values)


async def _until(reader: asyncio.StreamReader, wanted: bytes, seen: bytes = b"") -> bytes:
    """Read until a text has arrived. Returns all bytes read."""
    async with asyncio.timeout(ANSWER_SECONDS):
        while wanted not in seen:
            more = await reader.read(65_536)
            if not more:
                raise SystemExit(f"a stream ended before {wanted.decode()}")
            seen = seen[-len(wanted) :] + more
    return seen[seen.index(wanted) :]


async def _appending(server: Running, *, small: bool) -> list[Figure]:
    """Measure the appends of this process. Only the web half runs, because a worker would take the chat from this
    process."""
    rounds = ROUNDS_SMALL if small else ROUNDS
    append, hop = Samples(), Samples()
    progress("latency: append to reader")
    await _appends(server, append, small=small, rounds=rounds)
    await _bare_hop(server, hop, small=small, rounds=rounds)
    return [
        *append.figures("append", f"append to {READERS} readers", APPEND_P99_MS),
        *hop.figures("hop", "a bare hop through pub/sub"),
    ]


async def _commanding(server: Running, *, small: bool) -> list[Figure]:
    rounds = ROUNDS_SMALL if small else ROUNDS
    command, bare, first = Samples(), Samples(), Samples()
    progress("latency: commands")
    with _bare_app(server.store_url) as bare_url:
        await _commands(bare_url, bare, small=small, rounds=rounds)
        await _commands(server.url, command, small=small, rounds=rounds)
    progress("latency: first deltas")
    await _first_deltas(server.url, first, small=small, rounds=rounds)
    return [
        *command.figures("command", "command to 202", COMMAND_P99_MS),
        *bare.figures("bare", "a bare POST with one XADD"),
        *first.figures("first", "command to first delta", FIRST_DELTA_P99_MS),
    ]


def measure(small: bool) -> Section:
    """Measure the row `latency`."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as directory:
        with running(Path(directory) / "web", NO_MODELS, "web") as server:
            figures += uvloop.run(_appending(server, small=small))
        with running(Path(directory) / "both", NO_MODELS) as server:
            figures += uvloop.run(_commanding(server, small=small))
    progress("")
    return Section("latency", "wall-clock times on an otherwise idle machine", "python -m bench.latency", figures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m bench.latency", description="Measure the wall-clock times of an event and of a command."
    )
    parser.add_argument("--small", action="store_true", help="measure in less time")
    print(table(measure(parser.parse_args().small)))
