"""Sends a flood of requests until the process is ended: `python -m bench.flood_attacks NAME URL`.

The process prints a line when the flood has begun, that is, when the number of requests that it sent, or that were
answered or refused, reaches the number of its connections. The attacker has a valid token (`ann`). The process runs on
the machine of the server, with a low priority, so that the server and the other caller do not wait for its CPU.
Connections from loopback are not counted by address, so each flood bounds its own number of connections.
"""

import asyncio
import os
import re
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.tokens import bearer

__all__ = ["ATTACKS", "BIG_CHAT"]

BIG_CHAT = "big"
"""A chat of the attacker with a snapshot of a megabyte, which `bench.floods` makes before the flood."""

TOKEN = bearer("ann")["Authorization"].encode()
CHUNK = 65_536
MEGABYTE = 1_000_000
PRIORITY = 5

Attack = Callable[["Target"], Awaitable[None]]


class Target:
    """The address of the server. `line` opens a connection to the server. Each connection calls `count` when it has
    done its part; then `count` announces that the flood has begun."""

    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        self.host, self.port = str(at.hostname), int(at.port or 80)
        self.connections = 0
        self._counted = 0

    def count(self) -> None:
        self._counted += 1
        if self._counted == self.connections:
            print("begun", flush=True)

    async def line(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.host, self.port)

    async def send(self, head: bytes, *pieces: bytes, times: int = 1) -> None:
        """Send a head and then the pieces `times` times, without reading an answer, unless the server closes the
        connection before."""
        _, writer = await self.line()
        try:
            writer.write(head)
            await writer.drain()
            for _ in range(times):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    self.count()
        finally:
            writer.transport.abort()

    async def hold(self, head: bytes, *pieces: bytes) -> None:
        """Send a head and the pieces, and leave the connection open without reading an answer."""
        _, writer = await self.line()
        for data in (head, *pieces):
            writer.write(data)
            await writer.drain()
        self.count()
        while not writer.transport.is_closing():  # noqa: ASYNC110 - a transport has no event for its end
            await asyncio.sleep(0.2)

    async def ask(self, request: bytes) -> None:
        """Send a request again and again on one connection, and read each answer."""
        reader, writer = await self.line()
        try:
            while True:
                writer.write(request)
                await writer.drain()
                answer = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"\r\ncontent-length: *(\d+)", answer.lower())
                await reader.readexactly(int(length[1]) if length else 0)
                self.count()
                if b"connection: close" in answer.lower():
                    return
        finally:
            writer.transport.abort()


def head(method: bytes, path: bytes, *lines: bytes) -> bytes:
    told = (b"host: localhost", b"authorization: " + TOKEN, *lines)
    return method + b" " + path + b" HTTP/1.1\r\n" + b"\r\n".join(told) + b"\r\n\r\n"


async def _repeated(target: Target, count: int, attack: Callable[[int], Awaitable[None]]) -> None:
    """Run the attack on `count` connections, and repeat it on each connection when it ends."""
    target.connections = count

    async def one(number: int) -> None:
        while True:
            try:
                await attack(number)
            except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                target.count()
                await asyncio.sleep(0.01)  # refused: it tries again

    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(one(number))


def _json(path: bytes, body: bytes) -> bytes:
    return head(b"POST", path, b"content-type: application/json", b"content-length: %d" % len(body)) + body


def _message(number: int, context: bytes) -> bytes:
    return (
        b'{"type":"user_message","client_request_id":"f%d","content":"x","context":{"a":%s}}' % (number, context)
    )  # fmt: skip


async def _headers(target: Target) -> None:
    begun = b"GET /livez HTTP/1.1\r\nhost: x\r\n"
    kinds = ((begun + b"x: ", b"a" * CHUNK), (begun, b"a:b\r\n" * (CHUNK // 5)))
    await _repeated(target, 20, lambda number: target.send(kinds[number % 2][0], kinds[number % 2][1], times=10_000))


async def _silent(target: Target) -> None:
    await _repeated(target, 2_000, lambda number: target.hold(b"GET /livez HTTP/1.1\r\n" if number % 2 else b""))


async def _pipelined(target: Target) -> None:
    request = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
    await _repeated(target, 20, lambda _: target.send(b"", request * 2_000, times=10_000))


async def _framing(target: Target) -> None:
    begun = head(b"POST", b"/v1/chats/flooded/commands", b"transfer-encoding: chunked")
    kinds = (b"2;", b"0", b"2\r\n{}\r\n0\r\nx: ")
    await _repeated(target, 20, lambda number: target.send(begun + kinds[number % 3], b"0" * CHUNK, times=10_000))


async def _bombs(target: Target) -> None:
    values = (b"[" + b"[]," * 5_000_000 + b"[]]", b"[" + b"[]," * 24_000 + b"[]]", b'"' + b'\\"' * 8_000_000 + b'"')
    await _repeated(
        target, 6, lambda number: target.ask(_json(b"/v1/chats/flooded/commands", _message(number, values[number % 3])))
    )


async def _import_bombs(target: Target) -> None:
    head = (
        b'{"type":"chat","format":1,"chat_id":"imported","leaf_id":null,"message_count":1,"payload_count":0,'
        b'"agent_count":0,"blob_count":1,"thread":{}}\n'
    )
    message = head + b'{"type":"message","message":{"message_id":"m","role":"user","unknown":'
    blob = head + b'{"type":"blob","hash":"%b","mime":"text/plain","data":"' % (b"0" * 64)
    bodies = (
        message + b"[" + b"[]," * 10_000_000 + b"[]]}}\n",
        message + b'"' + b'\\"' * 8_000_000 + b'"}}\n',
        message + b'"' + b"\\\\" * 15_000_000 + b'"}}\n',
        blob + b"\\/" * 11_500_000 + b'"}\n',
        blob + b"a" * 23_000_000 + b'"}\n',
    )
    await _repeated(target, 6, lambda number: target.ask(_json(b"/v1/chats/import", bodies[number % 5])))


def _stalled(path: bytes) -> Attack:
    async def attack(target: Target) -> None:
        begun = head(b"POST", path, b"content-type: application/json", b"content-length: 15000000")
        await _repeated(target, 60, lambda _: target.hold(begun, *[b" " * CHUNK] * (14 * MEGABYTE // CHUNK)))

    return attack


async def _subscribes(target: Target) -> None:
    def subscribe(number: int) -> Awaitable[None]:
        asked = head(b"GET", b"/v1/chats/subscribe?chat_id=flooded-%d" % number, b"accept: text/event-stream")
        return target.send(asked, b"") if number % 2 else target.hold(asked)

    await _repeated(target, 400, subscribe)


async def _unread(target: Target) -> None:
    asked = (head(b"GET", b"/v1/chats/subscribe?chat_id=%s" % BIG_CHAT.encode()), head(b"GET", b"/v1/chats/big"))
    await _repeated(target, 200, lambda number: target.hold(asked[number % 2]))


async def _wrong_tokens(target: Target) -> None:
    request = b"GET /v1/chats HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer wrong\r\n\r\n"
    await _repeated(target, 100, lambda _: target.ask(request))


async def _no_http(target: Target) -> None:
    await _repeated(target, 20, lambda _: target.send(b"no request\r\n\r\n", b"a" * 100, times=3))


ATTACKS: dict[str, tuple[str, Attack]] = {
    "headers": ("headers without end, and millions of them, on 20 connections", _headers),
    "silent": ("2,000 connections that send nothing, or half a head", _silent),
    "pipelining": ("20 connections with endless requests, which read no answer", _pipelined),
    "framing": ("20 chunked bodies whose framing never ends", _framing),
    "bombs": ("6 connections with JSON of 16 MB, of many values or escapes", _bombs),
    "imports": ("6 imports with lines of 16 to 30 MB that are slow to decode", _import_bombs),
    "uploads": ("60 uploads of 15 MB that stop before their end", _stalled(b"/v1/chats/flooded/blobs")),
    "commands": ("60 commands of 15 MB that stop before their end", _stalled(b"/v1/chats/flooded/commands")),
    "stalled_imports": ("60 imports of 15 MB that stop before their end", _stalled(b"/v1/chats/import")),
    "subscribes": ("400 streams, half of which are opened again and again", _subscribes),
    "unread": ("200 clients that read neither a stream nor an answer of 1 MB", _unread),
    "wrong_tokens": ("100 connections with a wrong token", _wrong_tokens),
    "no_http": ("20 connections whose requests are not HTTP", _no_http),
}  # fmt: skip
"""For each flood, its description and its program."""


def _give_way() -> None:
    """Give this process a low priority, also among the sessions that the kernel treats as groups (sched(7),
    autogroup)."""
    os.nice(PRIORITY)
    with suppress(OSError):
        os.setsid()
        Path("/proc/self/autogroup").write_text(str(PRIORITY))


def _end_with_the_bench() -> None:
    """End this process when its input is closed, which happens whenever `bench.floods` ends."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    _give_way()
    threading.Thread(target=_end_with_the_bench, daemon=True).start()
    asyncio.run(ATTACKS[sys.argv[1]][1](Target(sys.argv[2])))  # type: ignore[arg-type] # each is a coroutine function
