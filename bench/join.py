"""Measures the cost of joining a chat while an answer is written: by the chat's length, for one reader or many at once,
cold or warm, and from a snapshot or resumed.

Cold: the chat has no reader, so the web process reads and folds it first. Warm: the chat has a reader, and the model
writes 10 words a second, so that no two joins see the same state. CPU time is that of the web process. Wall-clock time
ends when the reader has the whole snapshot and the first heartbeat. The baseline is Starlette, which sends the same
number of bytes from memory. To repeat: `python -m bench.join [--small]`.
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
from tests.support.fleet import fleet_on_new_store
from tests.support.server import user_message

from bench.figures import Figure, Section, announce, figure, progress, ratio, table
from bench.plain_app import plain_server
from bench.processes import cpu_seconds
from bench.streams import Streams, allow_open_files, get
from threadcast.chat.exports import ChatExport, export_lines
from threadcast_protocol.wire.messages import Message
from threadcast_protocol.wire.thread import ThreadChanges

__all__ = ["export_of", "measure"]

ALONE_MAX_MS = 50.0
"""The limit for joining a chat of 1,000 messages."""

HERD_MAX_RATIO = 1.5
"""The limit for the CPU time of many joins at once, as a multiple of Starlette's for as many bytes."""

HERDS = {10: 500, 1_000: 500, 10_000: 50}
"""Maps the length of the chat to the number of readers that join at once. The longest chat has fewer joins, so that the
number of bytes equals that of the chat of 1,000 messages: 500 joins would be 2.6 GB, take a minute each time, and
measure the machine's memory."""

QUESTION, ANSWER = "What is a lease, and who holds it? ", "A lease is a promise with an end. "
"""Texts that are repeated to about 100 and 700 characters, the usual lengths of a question and an answer."""

MODEL = "demo/essay?words=100000&rate=10"
"""The model's answer is longer than any measurement, and slow, so that the events of readers that have joined cost less
than the joins of the others."""

SETTLE_SECONDS = 0.5
"""The time within which a relay closes after its last reader has left."""

ID = re.compile(r"id: (\S+)\n")


class Spent(NamedTuple):
    """The milliseconds of one join: wall-clock time (of the slowest, if many joined at once) and CPU time of the web
    process."""

    wall: float
    cpu: float


def measure(small: bool) -> Section:
    """Measure five repetitions of each kind of join; `small` has two, and omits the longest chat."""
    announce("join", 20 if small else 120)
    allow_open_files(2 * max(HERDS.values()) + 500)
    lengths, repeats = (tuple(HERDS)[:2], 2) if small else (tuple(HERDS), 5)
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        figures = asyncio.run(_measured(stack, Path(directory), lengths, repeats))
    return Section("join", "joining during an answer", f"python -m bench.join{' --small' * small}", figures)


async def _measured(stack: ExitStack, directory: Path, lengths: tuple[int, ...], repeats: int) -> list[Figure]:
    fleet = stack.enter_context(fleet_on_new_store(directory))
    web = await fleet.add_web(limits={"STREAMS_PER_PRINCIPAL": "20000"})
    await fleet.add_worker()
    plain_url, plain_pid = stack.enter_context(plain_server())
    figures: list[Figure] = []
    async with httpx2.AsyncClient(timeout=60) as client:
        for length in lengths:
            progress(f"join: {length:,} messages are laid down")
            chat_id = f"long-{length}"
            answer = await client.post(f"{web.url}/v1/chats/import", content=export_of(chat_id, length)[0])
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
        ratio(
            f"{key}_plain_herd",
            f"{of}: CPU of {count} at once / Starlette's",
            _cpu(herd),
            _cpu(plain_herd),
            bar=HERD_MAX_RATIO,
        ),
    ]


def _spent(url: str, pid: int, requests: list[bytes]) -> Spent:
    """Open all readers at once and close them."""
    with Streams(url) as streams:
        began_at, cpu = time.perf_counter(), cpu_seconds(pid)
        streams.open(requests)
        return Spent((time.perf_counter() - began_at) * 1_000, (cpu_seconds(pid) - cpu) * 1_000)


def _place(url: str, join: bytes) -> str:
    """Return the id of an earlier event, from which a reader that lost its connection resumes."""
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


def export_of(chat_id: str, count: int) -> tuple[bytes, list[Message]]:
    """Return an exported chat of `count` messages as the body of an import, and the messages."""
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
    return b"".join(export_lines(chat)), messages


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.join", description=__doc__)
    parser.add_argument("--small", action="store_true", help="without the longest chat")
    section = measure(parser.parse_args().small)
    progress("")
    print(table(section))
    sys.exit(any(each.holds is False for each in section.figures))
