"""Attacks before a request is complete: endless and countless headers, silent and slow connections, too many
connections.

Each attack runs against a server over a real socket; meanwhile another caller is answered.
"""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from anyio.abc import SocketStream
from msgspec.structs import replace

from tests.resources.measures import rss_bytes
from tests.support.server import Process, start
from threadcast.base.telemetry import Metrics
from threadcast.http.admission import LINGERING_MAX, LOOPBACK, Connections
from threadcast.http.probes import Probes
from threadcast.http.readiness import Readiness
from threadcast.http.server import serving
from threadcast.http.sockets import listening
from threadcast.settings.limits import Limits

pytestmark = [pytest.mark.anyio, pytest.mark.row("SEC-1")]

DEADLINE_SECONDS = 30.0
GROWTH_MAX_BYTES = 50 * 1024 * 1024
"""Maximum memory that a flood may cost the process."""

FLOOD_BYTES = 300 * 1024 * 1024
HEAD = b"GET /livez HTTP/1.1\r\nhost: x\r\n"
OTHER = b"GET /v1/chats HTTP/1.1\r\nhost: x\r\n\r\n"
"""A request that is not a health probe."""


@asynccontextmanager
async def process(directory: Path, **limits: object) -> AsyncIterator[Process]:
    """Run a `threadcast serve` with these limits."""
    environment = {f"THREADCAST_LIMITS__{name.upper()}": str(value) for name, value in limits.items()}
    with start("serve", "--memory", "--port", "0", log=directory / "log", environment=environment) as server:
        yield await server.ready()


@asynccontextmanager
async def bounded(
    limits: Limits, most: int = 100, uncounted: tuple[str, ...] = LOOPBACK
) -> AsyncIterator[tuple[int, Metrics]]:
    """Run a server in this process; yields its port and metrics."""
    metrics = Metrics()
    with listening("127.0.0.1", 0) as listener, anyio.fail_after(DEADLINE_SECONDS):
        async with serving(listener, Probes(Readiness()), Connections(limits, most, metrics, uncounted)):
            yield listener.getsockname()[1], metrics


class Line:
    """A connection to a server on this machine."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self.received = b""

    async def send(self, data: bytes) -> bool:
        """Send `data`. Returns False when the server has closed the connection."""
        try:
            await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False
        return True

    async def until(self, mark: bytes) -> bytes:
        """Return the received bytes as soon as they contain `mark`."""
        while mark not in self.received:
            await self.more()
        return self.received

    async def more(self) -> None:
        """Wait for further bytes."""
        self.received += await self._stream.receive()

    async def rest(self) -> bytes:
        """Return what was received until the server closed the connection."""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                await self.more()
        return self.received

    async def close(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Line]:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        yield Line(stream)


async def ask(port: int, request: bytes = HEAD + b"\r\n") -> bytes:
    """Return the whole answer to one request."""
    async with connected(port) as line:
        await line.send(request.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1))
        return await line.rest()


def port_of(server: Process) -> int:
    port = urlsplit(server.url).port
    assert port is not None
    return port


def failure(answer: bytes) -> dict[str, str]:
    """Return the body of a refusal."""
    found: dict[str, str] = json.loads(answer.partition(b"\r\n\r\n")[2])
    return found


def refused(metrics: Metrics, reason: str) -> float:
    return metrics.registry.get_sample_value("threadcast_connections_refused_total", {"reason": reason}) or 0.0


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        pytest.param(HEAD + b"x: ", b"a" * 65_536, id="one endless header"),
        pytest.param(HEAD, b"a:b\r\n" * 13_107, id="millions of headers"),
        pytest.param(b"GET /", b"a" * 65_536, id="an endless line"),
        pytest.param(b"", b"\r\n" * 32_768, id="endless empty lines"),
    ],
)
async def test_headers_without_end_are_refused_and_cost_no_memory(tmp_path: Path, head: bytes, piece: bytes) -> None:
    async with process(tmp_path) as server, httpx2.AsyncClient(base_url=server.url) as other:
        assert (await other.get("/livez")).status_code == 200
        before = rss_bytes(server.pid)
        async with connected(port_of(server)) as line:
            await line.send(head)
            sent = 0
            while sent < FLOOD_BYTES and await line.send(piece):
                sent += len(piece)
        assert sent < FLOOD_BYTES, "the server went on reading"
        assert rss_bytes(server.pid) - before < GROWTH_MAX_BYTES
        assert (await other.get("/livez")).status_code == 200


async def test_a_head_of_just_the_allowed_size_is_answered_and_one_byte_more_is_not() -> None:
    limits = Limits(header_max_bytes=4_096)
    line = len(b"/livez") + len(b"host") + len(b"x") + 4 + len(b"connection") + len(b"close") + 4

    def request(size: int) -> bytes:
        return HEAD + b"x: " + b"a" * (size - line - len(b"x") - 4) + b"\r\n\r\n"

    async with bounded(limits) as (port, metrics):
        assert (await ask(port, request(4_096))).startswith(b"HTTP/1.1 200")
        answer = await ask(port, request(4_097))
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert failure(answer)["code"] == "too_large"
        assert "4,096 bytes and 100 fields" in failure(answer)["detail"]
        assert refused(metrics, "headers") == 1


async def test_the_count_of_headers_is_bounded_too() -> None:
    async with bounded(Limits(headers_max=20)) as (port, _):
        assert (await ask(port, HEAD + b"a: b\r\n" * 18 + b"\r\n")).startswith(b"HTTP/1.1 200")
        assert (await ask(port, HEAD + b"a: b\r\n" * 19 + b"\r\n")).startswith(b"HTTP/1.1 431 ")


async def test_a_second_request_is_bounded_like_the_first_and_a_body_is_not_taken_for_headers() -> None:
    async with bounded(Limits(header_max_bytes=4_096)) as (port, metrics), connected(port) as line:
        await line.send(b"POST /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n" + b"a" * 50_000)
        await line.until(b"}")
        await line.send(b"a" * 50_000 + HEAD)  # the next head begins in the chunk in which the body ends
        await line.send(b"x: ")
        for _ in range(6):  # the chunk in which a head begins is not counted; it has at most 256 KiB
            await line.send(b"a" * 65_536)
        assert b"HTTP/1.1 431 " in await line.rest()
        assert refused(metrics, "headers") == 1


@pytest.mark.parametrize("began", [b"", b"GET /livez HT", HEAD], ids=["silent", "half a line", "half a head"])
async def test_a_connection_whose_headers_do_not_come_in_time_is_closed(began: bytes) -> None:
    async with bounded(Limits(header_timeout_seconds=0.2)) as (port, metrics), connected(port) as line:
        await line.send(began)
        answer = await line.rest()
        assert refused(metrics, "slow_headers" if began else "silent") == 1
        if began:
            assert failure(answer)["code"] == "timeout"


@pytest.mark.parametrize("earlier", [b"", HEAD + b"\r\n"], ids=["first request", "second request"])
async def test_headers_that_drip_do_not_extend_their_time(earlier: bytes) -> None:
    async with bounded(Limits(header_timeout_seconds=0.5)) as (port, metrics), connected(port) as line:
        if earlier:
            await line.send(earlier)
            await line.until(b"}")
        await line.send(HEAD + b"x: ")
        while not refused(metrics, "slow_headers"):
            await line.send(b"a")
            await anyio.sleep(0.05)


async def test_a_stream_outlives_the_time_for_headers(tmp_path: Path) -> None:
    async with process(tmp_path, header_timeout_seconds=0.3, heartbeat_seconds=0.5) as server:
        url = f"{server.url}/v1/chats/subscribe?chat_id=quiet"
        async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as client, client.stream("GET", url) as answer:
            assert answer.status_code == 200
            beats = 0
            async for line in answer.aiter_lines():
                beats += line.startswith(":")
                if beats == 3:
                    break


async def test_too_many_connections_of_one_address_are_refused_until_some_close() -> None:
    async with bounded(Limits(connections_per_address=2), uncounted=()) as (port, metrics):
        async with connected(port):
            async with connected(port):
                answer = await ask(port, OTHER)
                assert answer.startswith(b"HTTP/1.1 429 ")
                assert b"retry-after: 5" in answer
                assert failure(answer)["code"] == "rate_limited"
                assert "server.trusted_proxies" in failure(answer)["detail"]
            while (await ask(port, OTHER)).startswith(b"HTTP/1.1 429"):
                await anyio.sleep(0.01)
        assert refused(metrics, "address") >= 1


async def test_proxies_and_the_machine_itself_are_not_counted_and_an_ipv6_network_counts_as_one_address() -> None:
    limits = replace(Limits(), connections_per_address=1)
    connections = Connections(limits, 100, Metrics(), (*LOOPBACK, "10.1.0.0/16"))
    for address in ("127.0.0.1", "::1", "10.1.2.3", "::ffff:10.1.2.3"):
        assert connections.enter(address) is connections.enter(address) is None
    for first, second in (("192.0.2.1", "::ffff:192.0.2.1"), ("2001:db8::1", "2001:db8::ffff:1")):
        assert connections.enter(first) is None
        assert connections.enter(second) is not None, f"{first} and {second} are one caller"
        connections.leave(second)
        connections.leave(first)
        assert connections.enter(second) is None
    assert connections.enter("2001:db8:0:1::1") is None, "another network"


async def test_a_full_server_refuses_further_connections_and_answers_those_that_it_has() -> None:
    async with bounded(Limits(), most=2) as (port, metrics), connected(port) as line, connected(port):
        await line.send(HEAD + b"\r\n")
        await line.until(b"}")
        answer = await ask(port, OTHER)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert failure(answer)["code"] == "unavailable"
        assert "The server has 2 open connections" in failure(answer)["detail"]
        line.received = b""
        await line.send(HEAD + b"\r\n")
        assert (await line.until(b"}")).startswith(b"HTTP/1.1 200 OK\r\n")
        assert refused(metrics, "total") == 1


@pytest.mark.parametrize("uncounted", [LOOPBACK, ()], ids=["full server", "full address"])
async def test_a_full_server_answers_probes_for_its_health_even_among_silent_connections(
    uncounted: tuple[str, ...],
) -> None:
    limits = Limits(connections_per_address=1)
    async with bounded(limits, 1 if uncounted else 1_000, uncounted) as (port, _), AsyncExitStack() as stack:
        await stack.enter_async_context(connected(port))
        for _ in range(LINGERING_MAX + 10):
            await stack.enter_async_context(connected(port))
        assert (await ask(port)).startswith(b"HTTP/1.1 200 ")
        assert b'"starting"' in await ask(port, b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"open connections" in await ask(port, b"GET /livezz HTTP/1.1\r\nhost: x\r\n\r\n")


@pytest.mark.parametrize("second", [HEAD + b"\r\n", OTHER])
async def test_a_connection_that_is_too_many_gets_one_answer_about_health_and_no_other(second: bytes) -> None:
    async with bounded(Limits(), most=1) as (port, _), connected(port), connected(port) as late:
        await late.send(HEAD + b"\r\n")
        await late.until(b"}")
        await late.send(second)
        assert (await late.rest()).count(b"HTTP/1.1") == 1
        async with connected(port) as both:
            await both.send(HEAD + b"\r\n" + second)
            assert (await both.rest()).count(b"HTTP/1.1") == 1


async def test_600_silent_connections_are_gone_after_the_time_for_headers(tmp_path: Path) -> None:
    async with process(tmp_path, header_timeout_seconds=1) as server, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(connected(port_of(server))) for _ in range(600)]
        async with httpx2.AsyncClient(base_url=server.url) as other:
            assert (await other.get("/livez")).status_code == 200
        with anyio.fail_after(DEADLINE_SECONDS):
            for line in lines:
                assert await line.rest() == b""
