"""Measures the CPU time of a write to each of 500 readers of one chat, compared with four other servers.

Our server sends an answer of the demo model, from the worker through a real Valkey to the sockets. The others have no
log and no store and send the same number of the same bytes at the same pace: a C program that only calls send(2), nginx
with nchan, Starlette's StreamingResponse and sse-starlette, both under uvicorn with uvloop. Only one server sends at a
time; they take turns over several rounds. The figure is the cost of one write to one reader. The other servers send as
many blocks as our server makes writes, and each block has the mean size of our server's writes. The readers count all
writes (`readers.c`).

After the quiet rounds come loaded ones, during which other programs keep every core busy: then caches are cold, and a
loop that waits for its turn finds more to do at once. Our server is measured twice: with readers that joined at the
same moment, and with readers that joined at different moments, so that the events have other numbers for each reader.
CPU time is read from the process's own clock. `python -m bench.fanout` runs it.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from bench.figures import Figure, Section, figure, progress, ratio, table
from bench.harness import Harness, opened_harness
from bench.processes import cpu_seconds
from bench.readers import Count, Readers, opened_readers
from bench.rivals import Rival, nchan, piped, plain_sse, send_c

__all__ = ["measure"]

READERS = 500
WORDS, RATE = 75, 25.0
"""The number of words in an answer, and how many of them are sent in a second. An answer lasts three seconds with an
event every 40 ms; the 500 readers together get 12,500 events a second."""

OPENING_WORDS, OPENING_RATE = 800, 33.0
"""The number of words, and of words a second, of the answer during which readers join one by one. This answer has more
events than there are readers."""

ROUNDS, ROUNDS_SMALL = 7, 3
LOADED_ROUNDS = 3
SETTLE_SECONDS = 0.5

OURS, APART, SEND = "ours", "ours, all bases different", "send(2)"
LOADED = "loaded: "

CHUNK_MARKS_BYTES = 6
"""The bytes that chunked coding adds to each event: two hexadecimal digits and two line ends."""


class Side(Protocol):
    """A server that sends to its own readers."""

    readers: Readers

    @property
    def pid(self) -> int: ...

    async def play(self) -> Count:
        """Play an answer once. Returns the counts of all readers since the reset."""


@dataclass
class Ours:
    harness: Harness
    chat_id: str
    readers: Readers

    @property
    def pid(self) -> int:
        return self.harness.web.pid

    async def play(self) -> Count:
        await self.harness.ask([self.chat_id], WORDS, RATE)
        return await self.harness.answered(self.readers, WORDS, RATE)


@dataclass
class Theirs:
    rival: Rival
    readers: Readers
    events_count: int

    @property
    def pid(self) -> int:
        return self.rival.pid

    async def play(self) -> Count:
        await anyio.to_thread.run_sync(self.rival.play, self.events_count, 1 / RATE)
        return await anyio.to_thread.run_sync(self.readers.wait, self.events_count)


@dataclass
class Contest:
    """The compared servers by name, and for each round the cost of a write to a reader in microseconds, the writes to
    a reader, and the bytes of a write."""

    sides: dict[str, Side] = field(default_factory=dict)
    costs: dict[str, list[float]] = field(default_factory=dict)
    writes: dict[str, list[float]] = field(default_factory=dict)
    sizes: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, side: Side) -> None:
        self.sides[name], self.writes[name], self.sizes[name] = side, [], []

    async def play(self, rounds: int, *, kind: str = "") -> None:
        """Play one round to warm up, then `rounds` that are recorded. The names of their costs begin with `kind`."""
        for number in range(rounds + 1):
            for name, side in self.sides.items():
                progress(f"fanout: {kind}round {number} of {rounds}, {name}")
                side.readers.reset()
                await anyio.sleep(SETTLE_SECONDS)
                before = cpu_seconds(side.pid)
                count = await side.play()
                spent = cpu_seconds(side.pid) - before
                if number:
                    self.costs.setdefault(kind + name, []).append(spent / count.writes * 1e6)
                if number and not kind:
                    self.writes[name].append(count.writes / READERS)
                    self.sizes[name].append(count.bytes / count.writes)


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy for a block, with one program each."""
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(process.kill)
        yield


def measure(small: bool) -> Section:
    """Measure for some minutes; with `small`, play fewer rounds."""
    return anyio.run(_measure, small)


async def _measure(small: bool) -> Section:
    contest = Contest()
    async with AsyncExitStack() as stack:
        harness = await stack.enter_async_context(opened_harness())
        sample = await _add_ours(stack, harness, contest)
        _add_theirs(stack, contest, sample)
        await contest.play(ROUNDS_SMALL if small else ROUNDS)
        with busy_cores():
            await contest.play(LOADED_ROUNDS, kind=LOADED)
    progress("")
    sizes = {name: statistics.median(values) for name, values in contest.sizes.items()}
    remarks = ["bytes of a write: " + ", ".join(f"{name} {size:.0f}" for name, size in sizes.items())]
    if "nchan" not in contest.sides:
        remarks.append("nchan is not installed; install it with: apt-get install nginx-light libnginx-mod-nchan")
    return Section(
        "fanout", f"{READERS} readers of one chat, log to socket", "python -m bench.fanout", _figures(contest), remarks
    )


async def _add_ours(stack: AsyncExitStack, harness: Harness, contest: Contest) -> Count:
    """Add both kinds of our readers to the contest. Returns the counts of the readers of the first kind for one
    answer."""
    same, other = _watching(stack, harness, "same"), _watching(stack, harness, "other")
    same.open(READERS)
    same.wait(1)
    contest.add(OURS, Ours(harness, "same", same))
    await harness.ask(["other"], OPENING_WORDS, OPENING_RATE)
    for number in range(READERS):
        progress(f"fanout: readers that join one by one, {number} of {READERS}")
        other.open(1)
        await anyio.sleep(1 / OPENING_RATE)
    await harness.answered(other, 1, OPENING_RATE)
    contest.add(APART, Ours(harness, "other", other))
    same.reset()
    return await contest.sides[OURS].play()


def _watching(stack: AsyncExitStack, harness: Harness, chat_id: str) -> Readers:
    return stack.enter_context(opened_readers(harness.web.url, f"/v1/chats/subscribe?chat_id={chat_id}"))


def _add_theirs(stack: AsyncExitStack, contest: Contest, sample: Count) -> None:
    """Add the other servers to the contest. They make as many writes of as many bytes as our server in
    `sample`."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    directory.chmod(0o755)  # nginx's worker runs as another user
    block = _block_of(round(sample.bytes / sample.writes) - CHUNK_MARKS_BYTES)
    (directory / "chunk").write_bytes(b"%x\r\n%b\r\n" % (len(block), block))
    (directory / "block").write_bytes(block)
    rivals: dict[str, Rival | None] = {
        SEND: stack.enter_context(piped(send_c(directory / "chunk"))),
        "nchan": stack.enter_context(nchan(directory, block.removeprefix(b"data: ").partition(b"\nid: ")[0])),
        "Starlette": stack.enter_context(piped(plain_sse("starlette", directory / "block"))),
        "sse-starlette": stack.enter_context(piped(plain_sse("sse-starlette", directory / "block"))),
    }
    for name, rival in rivals.items():
        if rival is not None:
            readers = stack.enter_context(opened_readers(rival.url, rival.path))
            readers.open(READERS)
            contest.add(name, Theirs(rival, readers, round(sample.writes / READERS)))


def _block_of(size: int) -> bytes:
    """Return an event of this size in the form of our deltas."""
    head, tail = b'data: {"chat_id":"same","seq":"120","type":"stream_delta","text":"', b'"}\nid: 1-120-12\n\n'
    return head + b"x" * (size - len(head) - len(tail)) + tail


def _figures(contest: Contest) -> list[Figure]:
    costs = contest.costs
    figures = [
        figure(f"cpu {name}", f"CPU of a write to a reader, {name}", values, "us") for name, values in costs.items()
    ]
    figures += [
        figure(f"writes {name}", f"writes to a reader in an answer, {name}", values, "", note="counted at the readers")
        for name, values in contest.writes.items()
    ]
    for kind in ("", LOADED):
        for name in (OURS, APART):
            ours = costs[kind + name]
            bars: dict[str, float | None] = {SEND: 2.0, "nchan": 1.1} if not kind else {SEND: None, "nchan": None}
            for rival, bar in bars.items():
                if rival in contest.sides:
                    what, note = _WORDS[rival]
                    key = f"{kind}{name} / {rival.removesuffix('(2)')}"
                    figures.append(ratio(key, f"{kind}{name} / {what}", ours, costs[kind + rival], bar=bar, note=note))
            for rival in ("Starlette", "sse-starlette"):
                what, note = _WORDS[rival]
                bar = 3.0 if rival == "sse-starlette" and not kind else None
                key = f"{kind}{rival} / {name}"
                theirs = costs[kind + rival]
                figures.append(ratio(key, f"{kind}{what} / {name}", theirs, ours, bar=bar, at_most=False, note=note))
    return figures


_WORDS = {
    SEND: ("send(2) in C", "the least that any server pays: no log, no parsing, no slow readers"),
    "nchan": ("nchan", "nginx in C with a message store in memory; its publisher is not counted"),
    "Starlette": ("Starlette", "the same event loop, a queue and a task for each reader, no log"),
    "sse-starlette": ("sse-starlette", "as Starlette, and each event is formatted for each reader"),
}
"""The texts beside the ratios: each server's name, and what the server does and does not do."""


if __name__ == "__main__":
    print(table(measure("--small" in sys.argv)))
