"""Attacks between a request's headers and its end: trailers, pipelined requests, and bodies after their answer."""

import gc
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from tests.resources.measures import rss_bytes
from tests.security.test_connections import (
    DEADLINE_SECONDS,
    GROWTH_MAX_BYTES,
    HEAD,
    ask,
    bounded,
    connected,
    failure,
    port_of,
    process,
    refused,
)
from threadcast.base.telemetry import Metrics
from threadcast.http.admission import LINGERING_MAX, LOOPBACK, Connections
from threadcast.http.connections import LINGER_SECONDS, PIPELINED_MAX, BoundedConnection
from threadcast.http.server import serving
from threadcast.http.sockets import listening
from threadcast.settings.limits import Limits

pytestmark = pytest.mark.anyio

CHUNKED = b"POST /livez HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
GET = HEAD + b"\r\n"


class Recorded:
    """An application that reads the body, answers when the test releases it, and records the headers."""

    def __init__(self) -> None:
        self.may_answer = anyio.Event()
        self.headers: list[list[tuple[bytes, bytes]]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive()).get("more_body"):
            pass
        self.headers.append(list(scope["headers"]))
        if message["type"] == "http.disconnect":
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        await self.may_answer.wait()
        await send({"type": "http.response.body", "body": b"ended"})


@asynccontextmanager
async def recording(limits: Limits) -> AsyncIterator[tuple[Recorded, int, Metrics]]:
    app, metrics = Recorded(), Metrics()
    with listening("127.0.0.1", 0) as listener, anyio.fail_after(DEADLINE_SECONDS):
        async with serving(listener, app, Connections(limits, 100, metrics, LOOPBACK)):
            try:
                yield app, listener.getsockname()[1], metrics
            finally:
                app.may_answer.set()


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(b"2\r\n{}\r\n0\r\nx: ", id="trailer"),
        pytest.param(b"2;", id="chunk extension"),
        pytest.param(b"0", id="length of a chunk"),
    ],
)
async def test_a_chunked_body_whose_framing_never_ends_is_cut_off(begun: bytes) -> None:
    async with recording(Limits()) as (_, port, metrics), connected(port) as line:
        await line.send(CHUNKED + begun)
        while await line.send(b"0" * 65_536):
            pass
        assert refused(metrics, "headers") == 1


async def test_a_trailer_does_not_become_a_header() -> None:
    async with recording(Limits()) as (app, port, _), connected(port) as line:
        await line.send(CHUNKED + b"2\r\n{}\r\n0\r\nauthorization: Bearer stolen\r\n\r\n")
        await line.until(b"begun")
        assert [name for name, _ in app.headers[0]] == [b"host", b"transfer-encoding"]
        app.may_answer.set()
        await line.until(b"ended")


async def test_pipelined_requests_are_bounded_while_an_answer_runs() -> None:
    async with recording(Limits()) as (app, port, metrics), connected(port) as line:
        await line.send(GET)
        await line.until(b"begun")
        await line.send(GET * (PIPELINED_MAX + 1))
        await line.rest()
        assert refused(metrics, "pipelined") == 1
        assert len(app.headers) == 1


async def test_an_answer_ends_with_its_connection_also_if_requests_wait_behind_it() -> None:
    gone = anyio.Event()

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    with listening("127.0.0.1", 0) as listener, anyio.fail_after(DEADLINE_SECONDS):
        connections = Connections(Limits(), 100, Metrics())
        async with serving(listener, app, connections), connected(listener.getsockname()[1]) as line:
            await line.send(GET)
            await line.until(b"begun")
            await line.send(GET * (PIPELINED_MAX + 1))  # too many: the server drops the connection
            await gone.wait()


async def test_as_many_pipelined_requests_as_allowed_are_answered() -> None:
    async with bounded(Limits()) as (port, metrics), connected(port) as line:
        await line.send(GET * (PIPELINED_MAX + 1))
        while line.received.count(b"}") <= PIPELINED_MAX:
            await line.more()
        assert not refused(metrics, "pipelined")


async def test_a_flood_of_pipelined_requests_costs_no_memory(tmp_path: Path) -> None:
    async with process(tmp_path) as server, httpx2.AsyncClient(base_url=server.url) as other:
        assert (await other.get("/livez")).status_code == 200
        before = rss_bytes(server.pid)

        async def flood() -> None:
            async with connected(port_of(server)) as line:
                sent = 0
                while sent < 10_000_000 and await line.send(GET * 5_000):
                    sent += len(GET) * 5_000

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(flood)
        assert (await other.get("/livez")).status_code == 200
        assert rss_bytes(server.pid) - before < GROWTH_MAX_BYTES


async def test_a_connection_with_too_many_pipelined_requests_is_held_for_a_while() -> None:
    async with bounded(Limits()) as (port, metrics), connected(port) as line:
        began_at = time.monotonic()
        await line.send(GET * (PIPELINED_MAX + 10))
        await line.rest()
        assert time.monotonic() - began_at >= LINGER_SECONDS - 0.1
        assert line.received.count(b"HTTP/1.1 ") < PIPELINED_MAX
        assert refused(metrics, "pipelined") == 1
        assert (await ask(port)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"", b"a"], ids=["no byte", "one byte"])
async def test_a_body_that_does_not_end_after_its_answer_is_cut_off(sent: bytes) -> None:
    async with bounded(Limits(body_timeout_seconds=0.3)) as (port, _), connected(port) as line:
        await line.send(b"POST /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n")
        await line.until(b"}")
        await line.send(sent)
        await line.rest()


async def test_a_body_that_ends_after_its_answer_leaves_a_connection_with_the_usual_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("threadcast.http.server.KEEP_ALIVE_SECONDS", 1)
    async with bounded(Limits()) as (port, _), connected(port) as line:
        await line.send(b"POST /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n")
        await line.until(b"}")
        await line.send(b"123456789")
        await line.rest()


async def test_garbage_after_a_request_puts_no_second_answer_into_the_first() -> None:
    async with recording(Limits()) as (_, port, _), connected(port) as line:
        await line.send(GET)
        await line.until(b"begun")
        await line.send(b"no request\r\n\r\n")
        assert b"HTTP/1.1 400" not in await line.rest()


@pytest.mark.parametrize("closes", [b"", b"connection: close\r\n"], ids=["kept alive", "closed"])
async def test_a_client_that_does_not_read_its_answer_is_disconnected(closes: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(32 * 1024 * 1024)})

    connections = Connections(Limits(subscriber_stall_seconds=0.3), 100, Metrics(), LOOPBACK)
    with listening("127.0.0.1", 0) as listener, anyio.fail_after(DEADLINE_SECONDS):
        async with serving(listener, app, connections) as server, connected(listener.getsockname()[1]) as line:
            await line.send(HEAD + closes + b"\r\n")
            await line.until(b"200 OK")
            assert server.server_state.connections
            while server.server_state.connections:
                await anyio.sleep(0.05)


async def test_a_client_that_reads_slowly_gets_its_whole_answer() -> None:
    size = 2 * 1024 * 1024

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(size)})

    connections = Connections(Limits(subscriber_stall_seconds=0.3), 100, Metrics(), LOOPBACK)
    with listening("127.0.0.1", 0) as listener, anyio.fail_after(DEADLINE_SECONDS):
        async with serving(listener, app, connections), connected(listener.getsockname()[1]) as line:
            await line.send(GET)
            while line.received.count(b"\0") < size:
                await line.more()
                await anyio.sleep(0.02)


async def test_a_request_with_two_hosts_is_refused() -> None:
    async with bounded(Limits()) as (port, _):
        assert (await ask(port)).startswith(b"HTTP/1.1 200 ")
        assert (await ask(port, HEAD + b"Host: other.example\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"no request\r\n\r\n", id="no HTTP"),
        pytest.param(b"\0" * 1_000_000, id="a megabyte of zeroes"),
        pytest.param(CHUNKED + b"2\r\n{}\r\nno length\r\n", id="a chunk without a length"),
    ],
)
async def test_what_is_not_http_gets_an_answer_and_few_log_lines(tmp_path: Path, request_: bytes) -> None:
    async with process(tmp_path) as server:
        for _ in range(20):
            async with connected(port_of(server)) as line:
                await line.send(request_)
                answer = await line.rest()
                assert answer.startswith(b"HTTP/1.1 400 ")
                assert failure(answer)["code"] == "bad_request"
        for _ in range(20):
            upgrade = b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"
            async with connected(port_of(server)) as line:
                await line.send(HEAD + upgrade)
                await line.until(b"\r\n\r\n")
    log = (tmp_path / "log").read_text()
    assert log.count("connections.refused") == 1
    assert "uvicorn.error" not in log


async def test_refused_connections_that_stay_silent_are_bounded() -> None:
    async with bounded(Limits(), most=1) as (port, metrics), AsyncExitStack() as stack:
        await stack.enter_async_context(connected(port))
        lines = [await stack.enter_async_context(connected(port)) for _ in range(LINGERING_MAX + 20)]
        with anyio.fail_after(0.9):  # 20 refusals are fewer than the number of connections that linger
            while refused(metrics, "total") < 20:
                await anyio.sleep(0.01)
        for line in lines:
            assert await line.rest() == b""
        assert (await ask(port)).startswith((b"HTTP/1.1 200", b"HTTP/1.1 503"))


async def test_a_connection_that_is_reset_after_its_answer_is_freed_at_once() -> None:
    """Before, the timer for the next request kept such a connection in memory for 75 s, so that resets without pause
    took megabytes per second."""

    def waiting() -> int:
        found = [each for each in gc.get_objects() if isinstance(each, BoundedConnection)]
        return len([each for each in found if each.timeout_keep_alive_task is not None])

    async with bounded(Limits()) as (port, _):
        with socket.create_connection(("127.0.0.1", port)) as line:
            await anyio.to_thread.run_sync(line.sendall, b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
            await anyio.to_thread.run_sync(line.recv, 1_000)
            with anyio.fail_after(DEADLINE_SECONDS):
                while not waiting():
                    await anyio.sleep(0.01)
            # the connection ends with a reset
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with anyio.fail_after(DEADLINE_SECONDS):
            while waiting():
                await anyio.sleep(0.01)
