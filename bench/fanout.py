"""Measures the CPU time of an event for each of 500 readers of one chat, compared with four other servers.

Our server sends an answer of the demo model, from the worker through a real Valkey to the sockets. The others have no
log and no store and send the same number of the same bytes at the same pace: a C program that only calls send(2), nginx
with nchan, Starlette's StreamingResponse and sse-starlette, both under uvicorn with uvloop. Only one server sends at a
time; they take turns over several rounds. Our server is measured twice: with readers that joined at the same moment,
and with readers that joined at different moments, whose events differ in their numbers. CPU time is read from the
process's own clock. `python -m bench.fanout` runs it.
"""

import sys
import tempfile
from contextlib import AsyncExitStack
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
"""The words of an answer and the words a second: three seconds with an event every 40 ms, 12,500 deliveries a
second."""

OPENING_WORDS, OPENING_RATE = 800, 33.0
"""The words, and words a second, of the answer during which readers join one by one. It has more events than
readers."""

ROUNDS, ROUNDS_SMALL = 7, 3
SETTLE_SECONDS = 0.5

OURS, APART, SEND = "ours", "ours, all bases different", "send(2)"

CHUNK_MARKS_BYTES = 6
"""The bytes that chunked coding adds to each event: two hexadecimal digits and two line ends."""


class Side(Protocol):
    """A server that sends to its own readers."""

    readers: Readers

    @property
    def pid(self) -> int: ...

    async def play(self) -> Count:
        """Play an answer once. Returns the events and bytes that all readers received since the reset."""


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
    """The compared servers by name, the cost of an event for a reader in each round, in microseconds, and the bytes of
    an event."""

    sides: dict[str, Side] = field(default_factory=dict)
    costs: dict[str, list[float]] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, side: Side) -> None:
        self.sides[name], self.costs[name] = side, []

    async def play(self, rounds: int) -> None:
        for number in range(rounds + 1):
            for name, side in self.sides.items():
                progress(f"fanout: round {number} of {rounds}, {name}")
                side.readers.reset()
                await anyio.sleep(SETTLE_SECONDS)
                before = cpu_seconds(side.pid)
                count = await side.play()
                spent = cpu_seconds(side.pid) - before
                self.sizes[name] = count.bytes / count.events
                if number:  # the first round warms up
                    self.costs[name].append(spent / count.events * 1e6)


def measure(small: bool) -> Section:
    """Measure for some minutes; `small` has fewer rounds."""
    return anyio.run(_measure, small)


async def _measure(small: bool) -> Section:
    contest = Contest()
    async with AsyncExitStack() as stack:
        harness = await stack.enter_async_context(opened_harness())
        sample = await _add_ours(stack, harness, contest)
        _add_theirs(stack, contest, sample)
        await contest.play(ROUNDS_SMALL if small else ROUNDS)
    progress("")
    remarks = ["bytes of an event: " + ", ".join(f"{name} {size:.0f}" for name, size in contest.sizes.items())]
    if "nchan" not in contest.sides:
        remarks.append("nchan is not installed; install it with: apt-get install nginx-light libnginx-mod-nchan")
    return Section(
        "fanout", f"{READERS} readers of one chat, log to socket", "python -m bench.fanout", _figures(contest), remarks
    )


async def _add_ours(stack: AsyncExitStack, harness: Harness, contest: Contest) -> Count:
    """Add both kinds of our readers to the contest. Returns the events and bytes of one answer that readers of the
    first kind received."""
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
    """Add the other servers to the contest. They send as many events and bytes as our answer in `sample`."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    directory.chmod(0o755)  # nginx's worker runs as another user
    block = _block_of(round(sample.bytes / sample.events) - CHUNK_MARKS_BYTES)
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
            contest.add(name, Theirs(rival, readers, round(sample.events / READERS)))


def _block_of(size: int) -> bytes:
    """Return an event of this size in the form of our deltas."""
    head, tail = b'data: {"chat_id":"same","seq":"120","type":"stream_delta","text":"', b'"}\nid: 1-120-12\n\n'
    return head + b"x" * (size - len(head) - len(tail)) + tail


def _figures(contest: Contest) -> list[Figure]:
    costs = contest.costs
    unit = "us"
    figures = [
        figure(f"cpu {name}", f"CPU of an event for a reader, {name}", values, unit) for name, values in costs.items()
    ]
    for name in (OURS, APART):
        figures.append(ratio(f"{name} / send", f"{name} / send(2) in C", costs[name], costs[SEND], bar=2.0))
        if "nchan" in costs:
            figures.append(ratio(f"{name} / nchan", f"{name} / nchan", costs[name], costs["nchan"], bar=1.1))
        for rival in ("Starlette", "sse-starlette"):
            bar = 3.0 if rival == "sse-starlette" else None
            figures.append(
                ratio(f"{rival} / {name}", f"{rival} / {name}", costs[rival], costs[name], bar=bar, at_most=False)
            )
    return figures


if __name__ == "__main__":
    print(table(measure("--small" in sys.argv)))
