"""Limits on a provider's response other than its stream: the body of an error, compressed or not, and the requested
wait."""

import asyncio
import gzip
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio
import httpx2
import pytest

from tests.integration.fake_openai import REQUEST
from threadcast.providers.anthropic.messages import Anthropic
from threadcast.providers.error_bodies import ERROR_BODY_MAX_BYTES, guard_errors
from threadcast.providers.google.gemini import Google
from threadcast.providers.openai.chat import OpenAIChat
from threadcast.providers.openai.responses import OpenAIResponses
from threadcast.settings import Provider as ProviderSettings
from threadcast_protocol.wire.errors import ModelFailed

pytestmark = pytest.mark.anyio

AnyProvider: TypeAlias = OpenAIChat | OpenAIResponses | Anthropic | Google
KINDS: list[type[AnyProvider]] = [OpenAIChat, OpenAIResponses, Anthropic, Google]

HUGE = b'HTTP/1.1 400 X\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nc\r\n{"message":"\r\n'
PIECE = b"10000\r\n" + b"A" * 0x10000 + b"\r\n"
PIECES_MAX = 1_000
"""Together the pieces have 64 MB, more than the buffers of both sockets hold."""


class Server:
    """Sends `head` in answer to each call, and then `PIECE` until the client disconnects. `pieces` counts the sent
    pieces, and `calls` the calls."""

    def __init__(self, head: bytes, pieces_max: int) -> None:
        self._head, self._pieces_max = head, pieces_max
        self.calls = self.pieces = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = next((x for x in head.split(b"\r\n") if x.startswith(b"content-length:")), b":0")
                await reader.readexactly(int(length.partition(b":")[2]))
                self.calls += 1
                writer.write(self._head)
                for _ in range(self._pieces_max):
                    writer.write(PIECE)
                    await writer.drain()
                    self.pieces += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(head: bytes, pieces_max: int = 0) -> AsyncIterator[Server]:
    served = Server(head, pieces_max)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        with anyio.fail_after(60):
            yield served
    finally:
        server.close()


async def failure_of(kind: type[AnyProvider], base_url: str, retries: int = 0) -> ModelFailed:
    provider = kind("fake", ProviderSettings(base_url=base_url, idle_timeout_seconds=30), max_retries=retries)
    try:
        with pytest.raises(ModelFailed) as failed:
            async for _ in provider.stream(REQUEST):
                pass
    finally:
        await provider.aclose()
    return failed.value


@pytest.mark.row("PROV-7")
@pytest.mark.parametrize("is_by_proxy", [False, True], ids=["direct", "by a proxy"])
@pytest.mark.parametrize("kind", KINDS)
async def test_of_an_endless_error_only_the_start_is_read(
    kind: type[AnyProvider], is_by_proxy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    async with serving(HUGE, PIECES_MAX) as server:
        if is_by_proxy:
            monkeypatch.setenv("http_proxy", server.url)
        failed = await failure_of(kind, "http://model.invalid" if is_by_proxy else server.url)
        assert (failed.code, failed.status, failed.retryable) == ("llm_error", 400, False)
        assert server.calls == 1 and server.pieces < PIECES_MAX


@pytest.mark.row("PROV-7")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("date", ["2026 00:00:00 +99999999999999", "99999999999999 00:00:00 GMT"])
async def test_a_date_of_no_calendar_is_no_wait(kind: type[AnyProvider], date: str) -> None:
    head = f"HTTP/1.1 429 X\r\nretry-after: Mon, 01 Jan {date}\r\ncontent-length: 0\r\n\r\n"
    async with serving(head.encode()) as server:
        failed = await failure_of(kind, server.url, retries=1)
        assert (failed.code, failed.retry_after_seconds) == ("rate_limited", None)
        assert server.calls == 2, "the SDK reads the header as well, when it is to try again"


BOMB = gzip.compress(b"A" * 20_000_000)


@pytest.mark.parametrize(
    ("packing", "body", "size"),
    [
        ("", b"A" * 200_000, ERROR_BODY_MAX_BYTES),
        ("identity", b"short", 5),
        ("gzip", gzip.compress(b"short", mtime=0), 5),
        ("gzip", BOMB, ERROR_BODY_MAX_BYTES),
        ("gzip", b"not packed", 0),
        ("gzip, gzip", gzip.compress(BOMB), 0),
        ("zstd", b"unknown", 0),
    ],
)
async def test_what_is_read_of_an_error_is_bounded_however_it_is_packed(packing: str, body: bytes, size: int) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        headers = {"content-encoding": packing} if packing else {}
        return httpx2.Response(500, headers=headers, stream=Body(body))

    transport = httpx2.MockTransport(answer)
    async with httpx2.AsyncClient(transport=transport, event_hooks={"response": [guard_errors]}) as client:
        assert len((await client.get("http://model.invalid")).content) == size


async def test_what_follows_a_packed_error_is_not_read_for_ever() -> None:
    body = Body(gzip.compress(b"short", mtime=0), *[b"\0" * 0x10000] * 100)
    transport = httpx2.MockTransport(lambda _: httpx2.Response(500, headers={"content-encoding": "gzip"}, stream=body))
    async with httpx2.AsyncClient(transport=transport, event_hooks={"response": [guard_errors]}) as client:
        assert (await client.get("http://model.invalid")).content == b"short"
    assert body.left >= 98 and body.is_closed


class Body(httpx2.AsyncByteStream):
    """`left` counts the pieces that were not requested."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces
        self.left = len(pieces)
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            self.left -= 1
            yield piece

    async def aclose(self) -> None:
        self.is_closed = True
