"""Measures a peer under load: several answers with several readers each; the CPU time of the peer and the lateness of
its tokens.

The package's `measure` calls it with running peers. CPU time is counted from the moment when all readers are connected
until the last reader has the last token. The model and the readers run in separate processes, the same for all peers;
only the peer's own processes are counted.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import msgspec

from bench.figures import quantile
from bench.peers.peer import ROOT, Cannot, Peer
from bench.peers.reading import begin
from bench.peers.scripted import Ask, Found, Load, prompt
from bench.processes import tree_cpu_seconds

__all__ = ["SHAPES", "Helper", "Loaded", "Shape", "helper", "load"]

RATE = 50
"""The tokens a second of a usual model."""

BEGIN_SECONDS = 0.3
"""The time that the other readers wait before they connect, if the first reader's request starts the answer."""

GRACE_SECONDS = 2.0
"""The grace time beyond the duration of the model's answer; tokens that arrive later count as missing."""

ASK_SECONDS = 20.0
"""Time limit for a peer to ask the model."""

LINE_BYTES = 64 << 20
"""The largest report of the readers, which has a number for every token."""


class Shape(msgspec.Struct, frozen=True):
    """The number of simultaneous answers, and of readers of each answer."""

    chats: int
    readers: int

    @property
    def key(self) -> str:
        return f"{self.chats}x{self.readers}"

    def __str__(self) -> str:
        return f"{self.chats} x {self.readers}"


SHAPES = (Shape(10, 1), Shape(1, 10), Shape(1, 100))


class Loaded(msgspec.Struct, frozen=True):
    """The result of one load: the CPU seconds for each delivered token, and the lateness of tokens at their readers."""

    server_seconds: float
    store_seconds: float
    p50_ms: float
    p99_ms: float
    missing: int
    delivered: int
    events: int
    """The number of data lines that all readers received. A line has any number of tokens, also none."""

    @property
    def per_second(self) -> float:
        """The number of tokens delivered for each CPU second of servers and store."""
        return 1 / (self.server_seconds + self.store_seconds)


class Helper:
    """The process of the model or of the readers, which is controlled by lines of text."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self, seconds: float = 60.0) -> bytes:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), seconds)
        if not line:
            raise RuntimeError("a process of the measurement has ended; its output is above")
        return line

    def say(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")


@asynccontextmanager
async def helper(name: str) -> AsyncIterator[Helper]:
    """Run `bench.peers.<name>` as a process for a block. The process ends when its input ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"bench.peers.{name}",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        limit=LINE_BYTES,
    )
    try:
        yield Helper(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 10)


async def load(peer: Peer, readers: Helper, shape: Shape, tokens: int, round_: str) -> Loaded:
    """Measure one load. Raises Cannot if the peer does not allow several readers, or refuses the request."""
    if shape.readers > peer.most_readers:
        raise Cannot(f"{peer.most_readers} reader{'s' if peer.most_readers > 1 else ''} at most")
    chats = [f"{peer.name}-{shape.key}-{round_}-{number}".replace("_", "-") for number in range(shape.chats)]
    async with httpx2.AsyncClient(timeout=30) as client:
        for chat in chats:
            await peer.prepare(client, chat)
        if not (peer.opens_first or peer.begins_by_reading):
            for chat in chats:
                await begin(peer, client, chat, prompt(chat, tokens, RATE))
        asks = []
        for chat in chats:
            count = shape.readers
            if peer.begins_by_reading:
                asks.append(Ask(peer.port, peer.begin(chat, prompt(chat, tokens, RATE)).wire(peer.port)))
                count -= 1
            if count:
                pause = BEGIN_SECONDS if peer.begins_by_reading else 0.0
                asks.append(Ask(peer.port, peer.watch(chat, None, "").wire(peer.port), count, pause))
        readers.say(msgspec.json.encode(Load(asks, tokens, tokens / RATE + GRACE_SECONDS)))
        await readers.line()
        word = b"stop"
        try:
            if peer.opens_first:
                for chat in chats:
                    await begin(peer, client, chat, prompt(chat, tokens, RATE))
            for chat in chats:
                await _asked(peer, client, chat)
            servers, stores = peer.processes()
            before = tree_cpu_seconds(servers), tree_cpu_seconds(stores)
            for chat in chats:
                await client.post(f"{peer.model_url}/go/{chat}")
            word = b"go"
        finally:
            readers.say(word)
            report = await readers.line(tokens / RATE + 2 * GRACE_SECONDS)
        found = msgspec.json.decode(report, type=Found)
        servers, stores = peer.processes()
        after = tree_cpu_seconds(servers), tree_cpu_seconds(stores)
    if found.refused or not found.latencies_us:
        raise Cannot(f"refused: {found.refused}" if found.refused else "no token arrived while the answer was written")
    return Loaded(
        server_seconds=(after[0] - before[0]) / found.tokens,
        store_seconds=(after[1] - before[1]) / found.tokens,
        p50_ms=quantile(found.latencies_us, 0.5) / 1000,
        p99_ms=quantile(found.latencies_us, 0.99) / 1000,
        missing=found.missing,
        delivered=found.tokens,
        events=found.events,
    )


async def _asked(peer: Peer, client: httpx2.AsyncClient, chat: str) -> None:
    """Wait until the peer has asked the model."""
    deadline = time.monotonic() + ASK_SECONDS
    while (await client.get(f"{peer.model_url}/plays/{chat}")).content == b"[]":
        if time.monotonic() > deadline:
            raise Cannot("did not ask the model")
        await asyncio.sleep(0.02)
