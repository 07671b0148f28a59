"""Measures how long requests that are made to be slow keep the event loop busy, whether they are accepted or refused.

One `threadcast serve` runs on asyncio's own event loop and records the CPU time of each callback (`bench.altered`). 200
bodies of up to 16 MiB are posted one after the other: many values, many keys, deep nesting, and long texts, in every
field that takes JSON, just within the limits and far beyond them. Then every other kind of input is sent
(`bench.inputs`). The measurement is in CPU time, so that other programs change it little.

A thread that decodes JSON stops the loop too, because it holds the interpreter's lock. Therefore the time of `GET
/livez` during each request is measured as well.
"""

import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import msgspec
from tests.support.server import Process
from tests.support.tokens import bearer, tokens

from bench.altered import Altered
from bench.figures import Figure, Section, announce, progress
from bench.inputs import Bomb, inputs
from threadcast.settings.limits import DEFAULT_LIMITS

__all__ = ["bombs", "measure"]

COUNT, COUNT_SMALL = 200, 60

STRETCH_MAX_MS = 100.0
"""The limit of the longest uninterrupted CPU time of the loop for one request, in milliseconds."""

LIVEZ_MAX_MS = 250.0
"""The limit of the longest answer to `/livez` while the requests are handled, in milliseconds of wall time."""

LIVEZ_SECONDS = 0.02
"""The pause between two requests of `/livez`."""

BODY_BYTES = DEFAULT_LIMITS.body_max_bytes - 1_000
VALUES = DEFAULT_LIMITS.body_max_values - 1_000
"""A number of values just below the limit of the server."""

SHOWN = 5
"""The number of the slowest bodies that the report names."""


def _values(item: bytes) -> bytes:
    return (
        b"[" + b",".join([item] * (VALUES // max(1, item.count(b",") + item.count(b"[") + item.count(b"{") + 1))) + b"]"
    )


def _keys(count: int) -> bytes:
    return b"{" + b",".join(b'"k%d":0' % number for number in range(count)) + b"}"


def _long(item: bytes, separator: bytes = b",") -> bytes:
    return b"[" + separator.join([item] * (BODY_BYTES // (len(item) + len(separator)) - 200)) + b"]"


def _text(unit: bytes) -> bytes:
    return b'"' + unit * (BODY_BYTES // len(unit) - 200) + b'"'


FILLINGS: dict[str, Callable[[], bytes]] = {
    "empty lists": lambda: _values(b"[]"),
    "empty objects": lambda: _values(b"{}"),
    "objects with a key": lambda: _values(b'{"a":1}'),
    "nested pairs": lambda: _values(b"[[[[[[]]]]]]"),
    "numbers": lambda: _values(b"1"),
    "fractions": lambda: _values(b"1.2345678901234567e-300"),
    "texts": lambda: _values(b'"a"'),
    "keys": lambda: _keys(VALUES),
    "deep lists": lambda: b"[" * 120 + b"]" * 120,
    "millions of lists": lambda: _long(b"[]"),
    "millions of keys": lambda: _keys(1_200_000),
    "millions of numbers": lambda: _long(b"1"),
    "millions of texts": lambda: _long(b'""'),
    "a text of commas": lambda: _text(b","),
    "a text of brackets": lambda: _text(b"[{"),
    "a text of escapes": lambda: _text(b"\\u00e9"),
    "a text of backslashes": lambda: _text(b"\\\\"),
    "a text of quotation marks": lambda: _text(b'\\"'),
    "a plain text": lambda: _text(b"a"),
    "spaces": lambda: b"[" + b" " * (BODY_BYTES - 1_000) + b"]",
    "a number of digits": lambda: b"0." + b"9" * (BODY_BYTES - 1_000),
    "an unclosed text": lambda: b'"' + b"a," * (BODY_BYTES // 2 - 500),
    "unclosed lists": lambda: b"[" * (BODY_BYTES - 1_000),
    "messages": lambda: _values(b'{"role":"user","content":""}'),
    "parts": lambda: _values(b'{"type":"text","text":"a"}'),
}
"""The texts with which a field is filled."""

_MESSAGE = b'{"type":"user_message","client_request_id":"%d","content":'
COMMANDS = "/v1/chats/bombed-%d/commands"

FIELDS: dict[str, tuple[str, bytes, bytes]] = {
    "context": (COMMANDS, _MESSAGE + b'"x","context":{"a":', b"}}"),
    "the context itself": (COMMANDS, _MESSAGE + b'"x","context":', b"}"),
    "content": (COMMANDS, _MESSAGE, b"}"),
    "attachments": (COMMANDS, _MESSAGE + b'"x","attachments":', b"}"),
    "context_files": (COMMANDS, _MESSAGE + b'"x","context_files":', b"}"),
    "params": (COMMANDS, _MESSAGE + b'"x","params":', b"}"),
    "an unknown field": (COMMANDS, _MESSAGE + b'"x","unknown":', b"}"),
    "patch": (COMMANDS, b'{"type":"set_params","client_request_id":"%d","patch":', b"}"),
    "a parameter": (COMMANDS, b'{"type":"set_params","client_request_id":"%d","patch":{"metadata":', b"}}"),
    "messages": (COMMANDS, b'{"type":"restore_messages","client_request_id":"%d","messages":', b"}"),
    "a result": (COMMANDS, b'{"type":"ide_tool_result","client_request_id":"%d","tool_call_id":"c","content":', b"}"),
    "decisions": (COMMANDS, b'{"type":"tool_decisions","client_request_id":"%d","decisions":', b"}"),
    "an input": (
        COMMANDS,
        b'{"type":"tool_decision","client_request_id":"%d","tool_call_id":"c","accepted":true,"input":',
        b"}",
    ),
    "completions": ("/v1/chat/completions", b'{"model":"demo/echo","user":"%d","messages":', b"}"),
    "completions' tools": (
        "/v1/chat/completions",
        b'{"model":"demo/echo","user":"%d","messages":[{"role":"user","content":"x"}],"tools":',
        b"}",
    ),
    "a stream's chats": ("/v1/streams/s%d", b'{"remove":[],"add":', b"}"),
}  # fmt: skip
"""The path of a request, and its body before and after the filling. `%d` is replaced by a number."""


def bombs(count: int, seed: int = 0) -> Iterator[Bomb]:
    """Yield `count` different bombs, in an order that depends on `seed`."""
    pairs = list(itertools.product(FILLINGS, FIELDS))
    random.Random(seed).shuffle(pairs)
    for number, (filling, field) in enumerate(pairs[:count]):
        path, before, after = FIELDS[field]
        body = before.replace(b"%d", b"%d" % number) + FILLINGS[filling]() + after
        yield Bomb(f"{filling} as {field}", path.replace("%d", str(number)), body)


def measure(small: bool = False) -> Section:
    """Send the bombs and the other inputs, and return the longest stretches."""
    announce("bombs", 120 if small else 300)
    return asyncio.run(_measured(COUNT_SMALL if small else COUNT))


async def _measured(count: int) -> Section:
    stretches: list[tuple[float, str]] = []
    waits: list[tuple[float, str]] = [(0.0, "")]
    statuses: dict[int, int] = {}
    unanswered: list[str] = []
    sent = 0
    with tempfile.TemporaryDirectory() as directory:
        record = Path(directory) / "stretches"
        record.touch()
        config = Path(directory) / "threadcast.toml"
        config.write_text(tokens(ann=""))
        altered = msgspec.json.encode(Altered(loop="asyncio", stretches=str(record))).decode()
        process = Process(
            ["serve", "--memory", "--port", "0", "--config", str(config)],
            Path(directory) / "log",
            program=("bench.altered", altered),
        )
        try:
            await process.ready()
            async with httpx2.AsyncClient(base_url=process.url, timeout=120) as client:
                read = len(record.read_text().split())
                for sent, bomb in enumerate(itertools.chain(bombs(count), inputs()), 1):
                    progress(f"bombs: {sent}: {bomb.name}")
                    asking = asyncio.create_task(_ask_often(process.url, bomb.name, waits))
                    try:
                        headers = {"content-type": "application/json", **bearer("ann"), **bomb.headers}
                        request = client.stream(bomb.method, bomb.path, content=bomb.body or None, headers=headers)
                        async with request as answer:  # an event stream is not read to its end
                            status = answer.status_code
                    except httpx2.TransportError as trouble:
                        status = 0
                        unanswered.append(f"{bomb.name} ({type(trouble).__name__}, {len(bomb.body):,} bytes)")
                    finally:
                        asking.cancel()
                        await asyncio.gather(asking, return_exceptions=True)
                    statuses[status] = statuses.get(status, 0) + 1
                    assert (await client.get("/livez")).status_code == 200
                    spent = [float(line) for line in record.read_text().split()]
                    stretches.append((max(spent[read:], default=0.0), f"{bomb.name}: {status}"))
                    read = len(spent)
        finally:
            process.close()
    told = ", ".join(f"{number} times {status}" for status, number in sorted(statuses.items()))
    return Section(
        "bombs",
        "requests made to be slow",
        "scripts/bench bombs",
        [
            _longest("longest", f"the longest stretch of the loop's CPU in {sent} requests", stretches, STRETCH_MAX_MS),
            _longest("livez", "the longest answer to /livez meanwhile", waits, LIVEZ_MAX_MS),
        ],
        [f"most CPU: {_slowest(stretches)}", f"longest /livez: {_slowest(waits)}", told]
        + [f"no status: {each}" for each in unanswered],
    )


async def _ask_often(url: str, name: str, waits: list[tuple[float, str]]) -> None:
    """Ask for `/livez` again and again, and note how long the longest answer took."""
    longest = 0.0
    async with httpx2.AsyncClient(base_url=url, timeout=120) as client:
        try:
            while True:
                began = time.monotonic()
                try:
                    await client.get("/livez")
                finally:  # also when the bomb was answered first
                    longest = max(longest, time.monotonic() - began)
                await asyncio.sleep(LIVEZ_SECONDS)
        finally:
            waits.append((longest, name))


def _longest(key: str, what: str, found: list[tuple[float, str]], bar: float) -> Figure:
    milliseconds = sorted(1_000 * seconds for seconds, _ in found)
    return Figure(key, what, milliseconds[-1], "ms", milliseconds[0], milliseconds[-1], bar=bar)


def _slowest(found: list[tuple[float, str]]) -> str:
    worst = sorted(found, reverse=True)[:SHOWN]
    return "; ".join(f"{name} ({seconds * 1_000:.0f} ms)" for seconds, name in worst)
