"""Large bodies of one caller: the memory that they take from the process while they arrive, stall or are read. Each
test attacks a real server over a socket.
"""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest

from tests.resources.measures import PeakMemory
from tests.support.server import DEADLINE_SECONDS, ROOT, serving
from tests.support.tokens import bearer, tokens

pytestmark = pytest.mark.anyio

MB = 1_000_000
GROWTH_MAX_BYTES = 50 * MB
ANN, BOB = bearer("ann"), bearer("bob")


async def _peak_of(directory: Path, attack: Callable[[str], Awaitable[None]]) -> int:
    """Return the maximum growth in bytes of a server's process during the attack. Another caller's requests are
    answered during the attack and afterwards."""
    async with (
        serving(directory, config=tokens(ann="", bob="")) as server,
        httpx2.AsyncClient(timeout=DEADLINE_SECONDS, base_url=server.url, headers=BOB) as bob,
    ):
        for _ in range(2):  # memory that the first requests take is not counted as a cost of the attack
            assert (await bob.get("/v1/chats")).status_code == 200
            assert (await bob.post("/v1/chats/bobs/blobs", content=b"bytes")).status_code == 201
            assert (await bob.post("/v1/chats/bobs/commands", content=b"{}")).status_code == 400
            assert (await bob.post("/v1/chats/import", content=b"{}\n")).status_code == 400
        peak = PeakMemory(server.pid)
        attacking = asyncio.create_task(_ended(attack(server.url)))
        while not attacking.done():
            assert (await bob.get("/v1/chats")).status_code == 200
            await asyncio.sleep(0.05)
        await attacking
        assert (await bob.post("/v1/chats/bobs/blobs", content=b"bytes")).status_code == 201
        return peak.growth_bytes


async def _ended(attack: Awaitable[None]) -> None:
    await asyncio.wait_for(attack, 2 * DEADLINE_SECONDS)


@pytest.mark.parametrize("path", ["/v1/chats/c1/commands", "/v1/chats/c1/blobs"])
@pytest.mark.parametrize("framing", ["content-length: 15000000", "transfer-encoding: chunked"])
async def test_sixty_bodies_that_stop_before_their_end_cost_less_than_50_mb(
    tmp_path: Path, path: str, framing: str
) -> None:
    piece = b" " * 65_536
    sent = piece if "length" in framing else b"%x\r\n%b\r\n" % (len(piece), piece)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {ANN['Authorization']}\r\n{framing}\r\n\r\n"

    async def attack(url: str) -> None:
        port = urlsplit(url).port
        assert port is not None
        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port)) for _ in range(60)]

            async def send(stream: anyio.abc.SocketStream) -> None:
                try:
                    await stream.send(head.encode())
                    for _ in range(14 * MB // len(piece)):
                        await stream.send(sent)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return  # refused, and the connection is closed

            async with anyio.create_task_group() as tasks:
                for stream in streams:
                    tasks.start_soon(send, stream)

    growth = await _peak_of(tmp_path, attack)
    assert growth < GROWTH_MAX_BYTES, growth


async def test_large_json_on_several_connections_costs_less_than_50_mb(tmp_path: Path) -> None:
    start = b'{"type":"user_message","client_request_id":"%d","content":"x","context":{"a":'
    values = (b'"' + b'\\"' * 8_000_000 + b'"', b"[" + b"[]," * 24_000 + b"[]]", b"[" + b"[]," * 5_000_000 + b"[]]")
    statuses = set()

    async def attack(url: str) -> None:
        async def send(number: int) -> None:
            headers = {**ANN, "content-type": "application/json"}
            async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS, base_url=url, headers=headers) as ann:
                for _ in range(8):
                    body = start % number + values[number % 3] + b"}}"
                    with suppress(httpx2.TransportError):  # refused before the whole body was sent
                        statuses.add((await ann.post("/v1/chats/c1/commands", content=body)).status_code)

        await asyncio.gather(*(send(number) for number in range(6)))

    growth = await _peak_of(tmp_path, attack)
    assert 413 in statuses, statuses
    assert growth < GROWTH_MAX_BYTES, growth


async def test_imports_with_the_largest_lines_cost_less_than_50_mb(tmp_path: Path) -> None:
    head = (
        b'{"type":"chat","format":1,"chat_id":"imported","leaf_id":null,"message_count":1,"payload_count":0,'
        b'"agent_count":0,"blob_count":1,"thread":{}}\n'
    )
    message = head + b'{"type":"message","message":{"message_id":"m","role":"user","content":"'
    blob = head + b'{"type":"blob","hash":"%b","mime":"text/plain","data":"' % (b"0" * 64)
    bodies = {
        message + b"a" * 16_000_000 + b'"}}\n': (400, "line 1: the header counts"),
        message + b"a" * 17_000_000 + b'"}}\n': (413, "line 2 is longer than 16777216 bytes"),
        blob + b"a" * 22_999_996 + b'"}\n': (400, "line 2: hash is not the SHA-256 of data"),
        blob + b"\\/" * 11_000_000 + b'"}\n': (400, "line 2: data must be base64, without escapes"),
        blob + b"a" * 24_000_000 + b'"}\n': (413, "line 2 is longer than 23068672 bytes"),
    }

    async def attack(url: str) -> None:
        async def send(body: bytes, status: int, reason: str) -> None:
            async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS, base_url=url, headers=ANN) as ann:
                for _ in range(3):
                    answer = await ann.post("/v1/chats/import", content=body)
                    assert answer.status_code == status, answer.text
                    assert reason in answer.json()["detail"], answer.text

        await asyncio.gather(*(send(body, *expected) for body, expected in bodies.items() for _ in range(2)))

    growth = await _peak_of(tmp_path, attack)
    assert growth < GROWTH_MAX_BYTES, growth


_FREED_BLOCKS = """
from threadcast.base.memory import return_large_blocks
from tests.resources.measures import rss_bytes
import os

if not return_large_blocks():
    raise SystemExit(77)
for _ in range(3):
    bytearray(30_000_000)  # glibc would take all smaller blocks from the heap from now on
before = rss_bytes(os.getpid())
blocks, small = [], []
for _ in range(50):
    blocks.append(bytearray(b"a") * 1_000_000)
    small.append(bytearray(b"a") * 2_000)  # keeps the heap from shrinking
blocks.clear()
print(rss_bytes(os.getpid()) - before)
"""


def test_the_memory_of_a_freed_body_goes_back_to_the_system() -> None:
    asked = [sys.executable, "-c", _FREED_BLOCKS]
    found = subprocess.run(asked, cwd=ROOT, capture_output=True, timeout=DEADLINE_SECONDS, check=False)
    if found.returncode == 77:
        pytest.skip("this system's C library has no mallopt")
    assert found.returncode == 0, found.stderr.decode()
    assert int(found.stdout) < 5 * MB
