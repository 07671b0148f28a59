"""A web process that receives SIGTERM tells readers when to reconnect, answers the waiting requests, and closes
connections as HTTP requires. Sockets are raw, so that the tests see every byte that ends a stream."""

import re
import signal
import statistics
from dataclasses import dataclass

import anyio
import anyio.abc
import pytest

from tests.bars import bar_seconds
from tests.support.fleet import Fleet
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, Process, command, user_message

pytestmark = pytest.mark.anyio

READERS = 200
ANSWER_SECONDS = 3.0
"""Maximum seconds that a stopping process waits for its last answers."""


@dataclass
class Line:
    """One connection to a web process."""

    stream: anyio.abc.SocketStream

    async def send(self, method: str, path: str, body: bytes = b"", *headers: str, length: int | None = None) -> None:
        told = "".join(f"{each}\r\n" for each in headers)
        size = len(body) if length is None else length
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{told}Content-Length: {size}\r\n\r\n"
        await self.stream.send(head.encode() + body)

    async def to_the_end(self) -> bytes:
        """Return all bytes until the other side closes; a reset is an error."""
        received = bytearray()
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                try:
                    received += await self.stream.receive()
                except anyio.EndOfStream:
                    await self.stream.aclose()
                    return bytes(received)

    async def until(self, wanted: bytes) -> bytes:
        received = bytearray()
        with anyio.fail_after(DEADLINE_SECONDS):
            while wanted not in received:
                received += await self.stream.receive()
        return bytes(received)


async def connect(web: Process) -> Line:
    host, _, port = web.url.removeprefix("http://").rpartition(":")
    return Line(await anyio.connect_tcp(host, int(port)))


@pytest.mark.row("NET-8")
async def test_200_readers_are_told_to_come_back_at_200_different_times(fleet: Fleet) -> None:
    web = await fleet.add_web()
    goodbyes: list[bytes] = []

    async def read(line: Line) -> None:
        goodbyes.append(await line.to_the_end())

    async with anyio.create_task_group() as tasks:
        for number in range(READERS):
            line = await connect(web)
            await line.send("GET", f"/v1/chats/subscribe?chat_id=c{number % 20}")
            await line.until(b": hb")
            tasks.start_soon(read, line)
        assert await web.stop() == 0
    pauses_ms = [
        int(found[1])
        for goodbye in goodbyes
        if (found := re.search(rb"\nretry: (\d+)\n\r\n0\r\n\r\n$", b"\n" + goodbye))
    ]
    assert len(pauses_ms) == READERS
    assert all(500 <= pause <= 3_000 for pause in pauses_ms)
    assert len(set(pauses_ms)) > READERS / 2
    # The `retry` times of readers are uniform over 2.5 s (deviation 722 ms, quarters of equal size), so readers do not
    # reconnect all at once.
    assert 600 < statistics.stdev(pauses_ms) < 850
    quarters = [sum(1 for pause in pauses_ms if (pause - 500) // 626 == quarter) for quarter in range(4)]
    assert min(quarters) > READERS / 8
    assert all(goodbye.endswith(b"\r\n0\r\n\r\n") for goodbye in goodbyes), "a stream that ends as HTTP wants it"
    ends = fleet.logged("subscription.ended")
    assert [line["reason"] for line in ends] == ["shutdown"] * READERS


async def test_a_post_that_waits_for_its_outcome_is_answered_with_what_is_known(fleet: Fleet) -> None:
    """Without a worker the command has no outcome and stays in the inbox; when the web process stops, the sender gets
    an answer at once."""
    web = await fleet.add_web()
    line = await connect(web)
    body = b'{"type":"user_message","client_request_id":"a","content":"hello"}'
    await line.send("POST", "/v1/chats/c1/commands", body, "Content-Type: application/json", "Prefer: wait=30")
    await fleet.until_logged("command.accepted")
    with anyio.fail_after(bar_seconds(ANSWER_SECONDS)):
        web.send(signal.SIGTERM)
        answer = await line.to_the_end()
    assert answer.startswith(b"HTTP/1.1 202") and b'"status":"accepted"' in answer
    assert b"connection: close" in answer.lower()
    assert await web.ended() == 0
    again = await fleet.add_web()
    await fleet.add_worker()
    async with watching(again.url, "c1") as chat:
        await chat.at_rest()
        assert [role for role, _ in chat.messages] == ["user", "assistant"]


async def test_a_post_whose_body_is_on_its_way_is_taken(fleet: Fleet) -> None:
    web = await fleet.add_web()
    line = await connect(web)
    body = b'{"type":"user_message","client_request_id":"a","content":"hello"}'
    kind = "Content-Type: application/json"
    await line.send("POST", "/v1/chats/c1/commands", body[:10], kind, "Expect: 100-continue", length=len(body))
    await line.until(b"100 Continue")
    web.send(signal.SIGTERM)
    await fleet.until_logged("process.stopping")
    await line.stream.send(body[10:])
    answer = await line.to_the_end()
    assert answer.startswith(b"HTTP/1.1 202")
    assert await web.ended() == 0
    again = await fleet.add_web()
    assert (await command(again.url, "c1", user_message("a", "hello"))).json() == {"status": "duplicate"}


async def test_an_idle_connection_is_closed_and_not_reset(fleet: Fleet) -> None:
    web = await fleet.add_web()
    line = await connect(web)
    await line.send("GET", "/v1/ping")
    await line.until(b"pong")
    web.send(signal.SIGTERM)
    assert await line.to_the_end() == b""
    assert await web.ended() == 0


async def test_while_it_retires_it_says_so_and_serves_on(fleet: Fleet) -> None:
    web = await fleet.add_web(limits={"RETIRE_SECONDS": "1.5"})
    reader = await connect(web)
    await reader.send("GET", "/v1/chats/subscribe?chat_id=c1")
    await reader.until(b": hb")
    web.send(signal.SIGTERM)
    await fleet.until_logged("process.stopping")
    for path, said in (("/readyz", (b"HTTP/1.1 503", b'"status":"draining"')), ("/livez", (b"HTTP/1.1 200", b"ok"))):
        prober = await connect(web)
        await prober.send("GET", path)
        answer = (
            await prober.to_the_end()
        )  # the process closes after each answer, so that the next request goes to another process
        assert answer.startswith(said[0]) and said[1] in answer and b"connection: close" in answer
    accepted = await command(web.url, "c1", user_message("a", "hello"))
    assert accepted.status_code == 202, "a balancer that has not looked yet still finds it"
    assert b"retry: " in await reader.to_the_end()
    assert await web.ended() == 0
