"""Joining a chat while an answer is being written: its length, alone or many at once, cold or warm, whole or resumed.

Cold: nobody watches the chat, so the web process reads and folds it first. Warm: somebody does, and the model goes on
at 10 words a second, so that no two joins see the same state. CPU is the web process's; the wall is until the reader
has the whole snapshot and the first heartbeat. The same number of bytes from Starlette's memory stands beside it. To
repeat: `python -m bench.join [--small]`.
"""

import argparse
import asyncio
import re
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx2

from bench.figures import Figure, Section, announce, figure, progress, ratio, table
from bench.plain_app import plain_server
from bench.processes import cpu_seconds
from bench.streams import Streams, allow_open_files, get
from protocol.exports import ChatExport, export_lines
from protocol.messages import Message
from protocol.thread import ThreadChanges
from tests.deploys.fleet import opened_fleet
from tests.integration.harness import user_message

__all__ = ["measure"]

ALONE_MAX_MS = 50.0
"""The bar, for 1,000 messages."""

HERDS = {10: 500, 1_000: 500, 10_000: 50}
"""By the length of the chat, how many join at once. As many bytes for the longest as for the second: 500 of it are
2.6 GB, which take a minute each time, and show the machine's memory rather than us."""

QUESTION, ANSWER = "What is a lease, and who holds it? ", "A lease is a promise with an end. "
"""Repeated to some 100 and 700 characters: two messages of the usual length."""

MODEL = "demo/essay?words=100000&rate=10"
"""Goes on for longer than any measurement, and slowly: the events of those who have joined already must not outweigh
the joining of the others."""

SETTLE_SECONDS = 0.5
"""For a relay that closes behind its last reader."""

ID = re.compile(r"id: (\S+)\n")


class Spent(NamedTuple):
    """Of one join: milliseconds by the wall (of the slowest, when many came at once) and of the web process's CPU."""

    wall: float
    cpu: float


def measure(small: bool) -> Section:
    """Five repetitions of each, or two without the longest chat when `small`."""
    announce("join", 20 if small else 120)
    allow_open_files(2 * max(HERDS.values()) + 500)
    lengths, repeats = (tuple(HERDS)[:2], 2) if small else (tuple(HERDS), 5)
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        figures = asyncio.run(_measured(stack, Path(directory), lengths, repeats))
    return Section("join", "joining in mid-answer", f"python -m bench.join{' --small' * small}", figures)


async def _measured(stack: ExitStack, directory: Path, lengths: tuple[int, ...], repeats: int) -> list[Figure]:
    fleet = opened_fleet(stack, directory)
    web = await fleet.web(limits={"STREAMS_PER_PRINCIPAL": "20000"})
    await fleet.worker()
    plain_url, plain_pid = stack.enter_context(plain_server())
    figures: list[Figure] = []
    async with httpx2.AsyncClient(timeout=60) as client:
        for length in lengths:
            progress(f"join: {length:,} messages are laid down")
            chat_id = f"long-{length}"
            answer = await client.post(f"{web.url}/v1/chats/import", content=_export(chat_id, length))
            assert answer.json()["imported"] == [chat_id], answer.text
            asked = user_message("go", "go on", params={"model": MODEL})
            assert (await client.post(f"{web.url}/v1/chats/{chat_id}/commands", json=asked)).status_code == 202
            await asyncio.sleep(SETTLE_SECONDS)
            progress(f"join: {length:,} messages")
            figures += _joins(web.url, web.pid, plain_url, plain_pid, chat_id, length, repeats)
            await client.post(
                f"{web.url}/v1/chats/{chat_id}/commands", json={"type": "abort", "client_request_id": "x"}
            )
    return figures


def _joins(url: str, pid: int, plain_url: str, plain_pid: int, chat_id: str, length: int, repeats: int) -> list[Figure]:
    join = get(f"/v1/chats/subscribe?chat_id={chat_id}")
    count = HERDS[length]
    cold: list[Spent] = []
    warm: list[Spent] = []
    herd: list[Spent] = []
    cold_herd: list[Spent] = []
    resumed: list[Spent] = []
    plain: list[Spent] = []
    plain_herd: list[Spent] = []
    size = 0
    for _ in range(repeats):
        time.sleep(SETTLE_SECONDS)
        cold.append(_spent(url, pid, [join]))
        time.sleep(SETTLE_SECONDS)
        cold_herd.append(_spent(url, pid, [join] * count))
        with Streams(url) as watching:
            watching.open([join])
            size = watching.received
            warm.append(_spent(url, pid, [join]))
            herd.append(_spent(url, pid, [join] * count))
            resumed.append(_spent(url, pid, [get(f"/v1/chats/subscribe?chat_id={chat_id}", _place(url, join))]))
        same = get(f"/bytes?count={size}")
        plain.append(_spent(plain_url, plain_pid, [same]))
        plain_herd.append(_spent(plain_url, plain_pid, [same] * count))
    key, of = f"{length}", f"{length:,} messages ({size / 1_000:,.0f} kB)"
    bar = ALONE_MAX_MS if length == 1_000 else None
    return [
        *_both(f"{key}_cold", f"{of}, alone, cold", cold, bar),
        *_both(f"{key}_warm", f"{of}, alone, warm", warm, bar),
        *_both(f"{key}_cold_herd", f"{of}, {count} at once, cold", cold_herd),
        *_both(f"{key}_herd", f"{of}, {count} at once, warm", herd),
        *_both(f"{key}_resumed", f"{of}, resumed by position", resumed),
        ratio(f"{key}_share", f"{of}: CPU of {count} at once / of as many alone", _cpu(herd), _cpu(warm, count)),
        ratio(f"{key}_plain", f"{of}: CPU alone, warm / Starlette's of as many bytes", _cpu(warm), _cpu(plain)),
        ratio(f"{key}_plain_herd", f"{of}: CPU of {count} at once / Starlette's", _cpu(herd), _cpu(plain_herd)),
    ]


def _spent(url: str, pid: int, requests: list[bytes]) -> Spent:
    """All at once, and gone again."""
    with Streams(url) as streams:
        began_at, cpu = time.perf_counter(), cpu_seconds(pid)
        streams.open(requests)
        return Spent((time.perf_counter() - began_at) * 1_000, (cpu_seconds(pid) - cpu) * 1_000)


def _place(url: str, join: bytes) -> str:
    """Where a reader stands that lost its connection some events ago."""
    kept = bytearray()
    with Streams(url, kept=kept) as streams:
        streams.open([join])
    time.sleep(SETTLE_SECONDS)
    found = [match[1] for match in ID.finditer(kept.decode())]
    return found[-1]


def _both(key: str, what: str, spent: list[Spent], bar: float | None = None) -> list[Figure]:
    return [
        figure(f"{key}_wall", f"{what}, wall", [each.wall for each in spent], "ms", bar=bar),
        figure(f"{key}_cpu", f"{what}, CPU", _cpu(spent), "ms"),
    ]


def _cpu(spent: list[Spent], times: int = 1) -> list[float]:
    return [each.cpu * times for each in spent]


def _export(chat_id: str, count: int) -> bytes:
    messages = [
        Message(
            role="assistant" if number % 2 else "user",
            content=ANSWER * 20 if number % 2 else QUESTION * 3,
            message_id=f"m{number}",
            finish_reason="stop" if number % 2 else None,
            parent_id=f"m{number - 1}" if number else None,
        )
        for number in range(count)
    ]
    chat = ChatExport(chat_id=chat_id, thread=ThreadChanges(), leaf_id=messages[-1].message_id, messages=messages)
    return b"".join(export_lines(chat))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.join", description=__doc__)
    parser.add_argument("--small", action="store_true", help="without the longest chat")
    section = measure(parser.parse_args().small)
    progress("")
    print(table(section))
    sys.exit(any(each.holds is False for each in section.figures))
