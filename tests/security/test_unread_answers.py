"""Clients that ask for large answers and do not read them: the memory that they take from the process. Each test
attacks a real server over a socket.
"""

import asyncio
import math
import select
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Self

import httpx2
import pytest

from tests.integration.store_fixtures import eventually
from tests.resources.measures import PeakMemory
from tests.support.server import DEADLINE_SECONDS, Process, serving, user_message
from tests.support.tokens import bearer, tokens

pytestmark = pytest.mark.anyio

MB = 1_000_000
GROWTH_MAX_BYTES = 50 * MB
ANN, BOB = bearer("ann"), bearer("bob")


class Unread:
    """A client that asks for `path` and reads nothing until `read` is called."""

    def __init__(self, server: Process, path: str) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        at = httpx2.URL(server.url)
        self._socket.connect((at.host, at.port))
        lines = (
            f"GET {path} HTTP/1.1",
            "host: localhost",
            f"authorization: {ANN['Authorization']}",
            "connection: close",
        )
        self._socket.sendall("\r\n".join((*lines, "", "")).encode())
        self._socket.settimeout(DEADLINE_SECONDS)

    async def read(self) -> bytes:
        """Return the whole answer."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> bytes:
        data = bytearray()
        while piece := self._socket.recv(65_536):
            data += piece
        return bytes(data)

    def has_answer(self) -> bool:
        return bool(select.select([self._socket], [], [], 0)[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@asynccontextmanager
async def _server(directory: Path, **limits: int) -> AsyncIterator[tuple[Process, httpx2.AsyncClient, str]]:
    """Run a server whose caller `ann` has the chat `big`, 1 MB long. Yields the server, a client of `ann`, and the path
    of a file of 8 MB."""
    config = tokens(ann='permissions = ["metrics"]', bob="")
    config += "[limits]\n" + "".join(f"{name} = {value}\n" for name, value in limits.items())
    async with (
        serving(directory, config=config) as server,
        httpx2.AsyncClient(timeout=DEADLINE_SECONDS, base_url=server.url, headers=ANN) as ann,
    ):
        message = {"role": "user", "content": "a" * 200_000}
        restore = {"type": "restore_messages", "client_request_id": "big", "messages": [message] * 5}
        for body in (restore, user_message("first", "hello")):
            done = await ann.post("/v1/chats/big/commands", json=body, headers={"prefer": "wait=20"})
            done.raise_for_status()
        file = (await ann.post("/v1/chats/big/blobs", content=b"b" * 8 * MB)).raise_for_status().json()
        yield server, ann, file["url"]


async def _has_unread(ann: httpx2.AsyncClient, least_bytes: int, most_bytes: float = math.inf) -> bool:
    counts = (await ann.get("/metrics")).raise_for_status().text
    held = float(counts.partition("\nthreadcast_answer_bytes_inflight ")[2].partition("\n")[0])
    return least_bytes <= held <= most_bytes


@pytest.mark.parametrize("path", ["/v1/chats/big", "/v1/chats/big?view=tree", "/v1/chats/big/export", "a file"])
async def test_two_hundred_clients_that_read_no_answer_cost_less_than_50_mb(tmp_path: Path, path: str) -> None:
    async with (
        _server(tmp_path) as (server, ann, file),
        httpx2.AsyncClient(timeout=DEADLINE_SECONDS, base_url=server.url, headers=BOB) as bob,
    ):
        before = PeakMemory(server.pid)
        with ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(Unread(server, file if path == "a file" else path))
            await eventually(partial(_has_unread, ann, 8 * MB))
            for _ in range(50):
                assert (await bob.get("/v1/chats")).status_code == 200
            assert before.growth_bytes < GROWTH_MAX_BYTES, before.growth_bytes
        await eventually(partial(_has_unread, ann, 0, 0))


async def test_a_request_waits_until_the_caller_has_read_its_other_answers(tmp_path: Path) -> None:
    async with _server(tmp_path, answers_per_principal_bytes=MB) as (server, ann, file):
        with Unread(server, file) as first, Unread(server, "/v1/chats/big") as second:
            await eventually(partial(_has_unread, ann, 8 * MB))
            assert not second.has_answer()
            assert (await ann.get("/v1/chats")).status_code == 200, "small answers do not wait"
            assert (await first.read()).endswith(b"b" * MB)
            answer = await second.read()
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert answer.count(b"a" * 200_000) == 5


async def test_unread_answers_of_all_callers_together_are_bounded(tmp_path: Path) -> None:
    async with _server(tmp_path, answers_max_bytes=MB) as (server, ann, file):
        with Unread(server, file):
            await eventually(partial(_has_unread, ann, 8 * MB))
            refused = await ann.get("/v1/chats/big")
            assert (refused.status_code, refused.json()["code"]) == (503, "unavailable"), refused.text
            assert refused.headers["retry-after"]
        await eventually(partial(_has_unread, ann, 0, 0))
        with Unread(server, "/v1/chats/big") as later:
            assert (await later.read()).startswith(b"HTTP/1.1 200 ")
