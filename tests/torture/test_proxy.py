"""The misbehaving proxy forwards bytes unchanged and in order, and each fault has the effect that its name states."""

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.torture.proxy import Proxy

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 30.0
LINE_MAX_BYTES = 2**20
Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def echo_harness() -> AsyncIterator[Proxy]:
    """A server that echoes each line, behind a proxy; `heard` has the lines that it received."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                heard.append(line)
                writer.write(line)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    heard: list[bytes] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=LINE_MAX_BYTES)
    async with server, Proxy("test", server.sockets[0].getsockname()[:2]) as proxy, asyncio.timeout(DEADLINE_SECONDS):
        HEARD[proxy.name] = heard
        yield proxy


HEARD: dict[str, list[bytes]] = {}


@asynccontextmanager
async def line_to(proxy: Proxy) -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port, limit=LINE_MAX_BYTES)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def ask(line: Line, words: bytes = b"hello\n") -> bytes:
    reader, writer = line
    writer.write(words)
    return await reader.readline()


async def test_bytes_arrive_unchanged_and_in_order_both_ways() -> None:
    sent = random.Random(1).randbytes(300_000).replace(b"\n", b" ") + b"\n"
    async with echo_harness() as proxy, line_to(proxy) as (reader, writer):
        writer.write(sent)
        answer = await reader.readuntil(b"\n")
    assert hashlib.sha256(answer).digest() == hashlib.sha256(sent).digest()
    assert (proxy.opened, proxy.hit, proxy.lines_count) == (1, 0, 0)


async def test_cut_ends_both_sides_in_order_and_new_connections_work() -> None:
    async with echo_harness() as proxy, line_to(proxy) as line:
        assert await ask(line) == b"hello\n"
        assert proxy.cut() == 1
        assert await line[0].read() == b""
        async with line_to(proxy) as again:
            assert await ask(again) == b"hello\n"


async def test_reset_is_felt_as_a_reset() -> None:
    async with echo_harness() as proxy, line_to(proxy) as line:
        assert await ask(line) == b"hello\n"
        assert proxy.reset() == 1
        with pytest.raises(ConnectionResetError):
            await line[0].read()


async def test_a_half_closed_line_ends_at_the_target_and_the_client_is_told_later() -> None:
    async with echo_harness() as proxy, line_to(proxy) as line:
        assert await ask(line, b"before\n") == b"before\n"
        (severed,) = proxy._lines
        assert proxy.sever(0.2) == 1
        assert severed.server is not None and severed.server.transport.is_closing()
        assert not severed.client.transport.is_closing()
        async with line_to(proxy) as other:
            assert await ask(other, b"meanwhile\n") == b"meanwhile\n"
        with pytest.raises(ConnectionResetError):
            await ask(line, b"lost\n")
        assert HEARD["test"] == [b"before\n", b"meanwhile\n"]


async def test_a_half_open_line_swallows_both_ways_until_it_is_reset() -> None:
    async with echo_harness() as proxy, line_to(proxy) as line:
        assert await ask(line, b"before\n") == b"before\n"
        assert proxy.swallow(0.2) == 1
        async with line_to(proxy) as other:
            assert await ask(other, b"meanwhile\n") == b"meanwhile\n"
        with pytest.raises(ConnectionResetError):
            await ask(line, b"lost\n")
        assert HEARD["test"] == [b"before\n", b"meanwhile\n"]


async def test_a_dropped_reply_belongs_to_a_request_that_went_through() -> None:
    async with echo_harness() as proxy, line_to(proxy) as line:
        proxy.drop_replies()
        with pytest.raises(ConnectionResetError):
            await ask(line, b"done\n")
        async with line_to(proxy) as again:
            assert await ask(again, b"next\n") == b"next\n"
        assert (HEARD["test"], proxy.replies_dropped) == ([b"done\n", b"next\n"], 1)


async def test_delay_and_throttle_slow_down_and_lose_nothing() -> None:
    async with echo_harness() as proxy, line_to(proxy) as line:
        proxy.delay(0.1, 60)
        clock = asyncio.get_running_loop().time
        began_at = clock()
        assert await ask(line) == b"hello\n"
        assert clock() - began_at >= 0.2  # there and back
        proxy.heal()
        proxy.throttle(10_000, 60)
        began_at = clock()
        assert await ask(line, b"x" * 2_000 + b"\n") == b"x" * 2_000 + b"\n"
        assert clock() - began_at >= 0.2


async def test_while_it_refuses_nobody_gets_through() -> None:
    async with echo_harness() as proxy:
        proxy.refuse(60)
        async with line_to(proxy) as line:
            with pytest.raises(ConnectionResetError):
                await line[0].read()
        proxy.heal()
        async with line_to(proxy) as line:
            assert await ask(line) == b"hello\n"


async def test_a_target_that_is_away_is_a_reset_and_found_again_elsewhere(tmp_path: Path) -> None:
    async with echo_harness() as proxy:
        target, proxy.target = proxy.target, tmp_path / "nobody.sock"
        async with line_to(proxy) as line:
            with pytest.raises(ConnectionResetError):
                await line[0].read()
        proxy.target = target
        async with line_to(proxy) as line:
            assert await ask(line) == b"hello\n"


async def test_a_slow_reader_is_felt_by_who_writes() -> None:
    """The proxy's buffer is bounded: a server that writes 20 MB to a client that does not read has to wait."""
    written = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        try:
            for _ in range(320):
                writer.write(b"x" * 65_536)
                await writer.drain()
                written += 65_536
        except ConnectionError:
            pass

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, Proxy("slow", server.sockets[0].getsockname()[:2]) as proxy, line_to(proxy) as (reader, _):
        await reader.readexactly(1)
        reader._transport.pause_reading()  # type: ignore[attr-defined] # a reader that does not read
        before = -1
        async with asyncio.timeout(DEADLINE_SECONDS):
            while before != written:
                before = written
                await asyncio.sleep(0.1)
        assert written < 16_000_000
