"""A model server on loopback that never ends, never answers, or sends giant messages; the model's name chooses which.

It implements only the needed part of the OpenAI protocol, and runs in the test's own event loop, since the server under
test is another process. It sends until the client disconnects, and records the disconnection in `has_left`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

__all__ = ["BadModels", "bad_models"]

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
KILOBYTE = "word " * 200
SENT_MAX_BYTES = 400_000_000
"""Maximum bytes of one answer, so that a client that never disconnects fails the test and does not fill the machine's
memory."""


class BadModels:
    """`has_left` has the names of the models whose client disconnected before the end of the answer. `sent_bytes` by
    model name."""

    def __init__(self) -> None:
        self.base_url = ""
        self.has_left: set[str] = set()
        self.sent_bytes: dict[str, int] = {}

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not (name := await self._read(reader)):
            writer.close()
            return
        gone = asyncio.create_task(reader.read(1))  # ends when the client disconnects
        try:
            writer.write(HEAD)
            sending = asyncio.create_task(self._send(name, writer))
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
            if gone.done() or sending.result() == "left":
                self.has_left.add(name)
            sending.cancel()
        finally:
            gone.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await gone
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> str:
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if not lengths:  # a request for the list of models, which this server does not have
            return ""
        body = await reader.readexactly(int(lengths[0].partition(b":")[2]))
        return str(json.loads(body)["model"])

    async def _send(self, name: str, writer: asyncio.StreamWriter) -> str:
        async for piece in _PLAYS[name]():
            self.sent_bytes[name] = self.sent_bytes.get(name, 0) + len(piece)
            if self.sent_bytes[name] > SENT_MAX_BYTES:
                break
            writer.write(piece)
            try:
                await writer.drain()
            except ConnectionError:
                return "left"
        return "sent"


@asynccontextmanager
async def bad_models() -> AsyncIterator[BadModels]:
    models = BadModels()
    server = await asyncio.start_server(models.answer, "127.0.0.1", 0)
    models.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield models


def _chunk(**delta: object) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


async def _endless() -> AsyncIterator[bytes]:
    piece = _chunk(content=KILOBYTE)
    while True:
        yield piece


async def _endless_thoughts() -> AsyncIterator[bytes]:
    piece = _chunk(reasoning_content=KILOBYTE)
    while True:
        yield piece


async def _silent() -> AsyncIterator[bytes]:
    yield _chunk(content="I was going to say")
    await asyncio.Event().wait()


async def _dripping() -> AsyncIterator[bytes]:
    yield _chunk(content="I am still")
    while True:
        yield b": thinking\n\n"
        await asyncio.sleep(0.05)


async def _one_line() -> AsyncIterator[bytes]:
    yield b'data: {"choices":[{"index":0,"delta":{"content":"'
    while True:
        yield b"x" * 100_000


async def _arguments() -> AsyncIterator[bytes]:
    yield _chunk(tool_calls=[{"index": 0, "id": "call_1", "function": {"name": "clock", "arguments": '{"a":"'}}])
    piece = _chunk(tool_calls=[{"index": 0, "function": {"arguments": "x" * 1_000}}])
    while True:
        yield piece


async def _calls() -> AsyncIterator[bytes]:
    for index in range(1_000_000):
        call = {"index": index, "id": f"call_{index}", "function": {"name": "clock", "arguments": "{"}}
        yield _chunk(tool_calls=[call])


_PLAYS = {
    "endless": _endless,
    "endless-thoughts": _endless_thoughts,
    "silent": _silent,
    "dripping": _dripping,
    "one-line": _one_line,
    "arguments": _arguments,
    "calls": _calls,
}
