"""Answers that the server sends before the end of a body: the client receives them, and cannot make the server read
without end."""

import asyncio
import gc
import socket
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from msgspec.structs import replace
from starlette.types import Message, Receive, Scope, Send

from tests.security.test_connections import DEADLINE_SECONDS, bounded, connected, port_of, process
from tests.support.server import Process
from threadcast.api.edge import emptied_on_errors
from threadcast.api.errors import ErrorBoundary
from threadcast.base.telemetry import Metrics
from threadcast.http.connections import DISCARDED_BODIES
from threadcast.http.readiness import Readiness
from threadcast.settings.limits import DEFAULT_LIMITS, Limits
from threadcast_protocol.wire.errors import TooLarge

pytestmark = pytest.mark.anyio

BODY_BYTES = DEFAULT_LIMITS.body_max_bytes + 1_000_000
"""The size of a body that is slightly above the limit and many times the size of the kernel's buffers."""

COMMANDS = b"POST /v1/chats/c1/commands HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
LONG = b"content-length: %d\r\n" % BODY_BYTES
CLOSE = b"connection: close\r\n"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Process]:
    async with process(tmp_path) as server:
        yield server


def sent_then_read(port: int, head: bytes, body_bytes: int) -> bytes:
    """Send a whole request like a simple client, which reads only afterwards. Raises ConnectionError when the server
    resets the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_SECONDS) as line:
        line.sendall(head + b"\r\n")
        for _ in range(body_bytes // 100_000):
            line.sendall(b"a" * 100_000)
        answer = b""
        while b"}" not in answer and (received := line.recv(65_536)):
            answer += received
        return answer


EARLY = {
    "too large": (COMMANDS + LONG + CLOSE, b"413"),
    "too large, kept alive": (COMMANDS + LONG, b"413"),
    "too large, in HTTP/1.0": (COMMANDS.replace(b"1.1", b"1.0") + LONG, b"413"),
    "foreign origin": (COMMANDS + LONG + CLOSE + b"origin: https://evil.example\r\n", b"403"),
    "headers too large": (COMMANDS + LONG + b"x: " + b"a" * 40_000 + b"\r\n", b"431"),
    "two hosts": (COMMANDS + LONG + b"host: other\r\n", b"400"),
    "no HTTP": (LONG + CLOSE, b"400"),
    "method": (COMMANDS.replace(b"/commands", b"") + LONG + CLOSE, b"405"),
}
"""Heads of requests that are answered before their body, and the status of each answer."""


async def test_a_client_that_sends_its_whole_body_first_gets_the_answer_that_came_early(server: Process) -> None:
    for name, (head, status) in EARLY.items():
        answer = await anyio.to_thread.run_sync(sent_then_read, port_of(server), head, BODY_BYTES)
        assert answer.startswith(b"HTTP/1.1 " + status), name


@pytest.mark.parametrize("close", [CLOSE, b""], ids=["closed", "kept alive"])
async def test_a_body_without_end_is_cut_off_after_twice_the_limit(close: bytes) -> None:
    limits = replace(Limits(), body_max_bytes=1_000_000)
    async with bounded(limits) as (port, _), connected(port) as line:
        await line.send(b"POST /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 900000000\r\n" + close + b"\r\n")
        await line.until(b"}")
        sent = 0
        while sent < 300_000_000 and await line.send(b"a" * 65_536):
            sent += 65_536
        assert DISCARDED_BODIES * limits.body_max_bytes < sent + 65_536 < 100_000_000


async def test_a_body_that_drips_after_the_last_answer_is_cut_off_after_the_time_for_bodies() -> None:
    async with bounded(Limits(body_timeout_seconds=0.5)) as (port, _), connected(port) as line:
        await line.send(b"POST /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 900000000\r\n" + CLOSE + b"\r\n")
        assert b"connection: close" in await line.rest()  # the server has said that it sends no more
        began = asyncio.get_running_loop().time()
        while await line.send(b"a"):
            await anyio.sleep(0.02)
        assert asyncio.get_running_loop().time() - began < DEADLINE_SECONDS / 2


def test_a_refused_body_is_freed_though_its_error_refers_to_it() -> None:
    body = bytearray(1_000_000)
    with pytest.raises(TooLarge), emptied_on_errors(body):
        raise TooLarge("too large")
    assert body == b""
    with emptied_on_errors(kept := bytearray(b"kept")):
        pass
    assert kept == b"kept"


async def test_a_refused_request_leaves_nothing_for_the_garbage_collection() -> None:
    class Part:
        """Reads a part of the body, in a stack frame called by the frame that answers."""

    parts: list[weakref.ref[Part]] = []

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        part = Part()
        parts.append(weakref.ref(part))
        raise TooLarge("too large")

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        pass

    app = ErrorBoundary(endpoint, Metrics().http_requests, Readiness())
    gc.disable()
    try:
        await app({"type": "http", "method": "POST", "path": "/", "headers": []}, receive, send)
        assert parts[0]() is None
    finally:
        gc.enable()
