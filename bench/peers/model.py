"""The model for all peers: an OpenAI-compatible server in its own process that writes tokens with timestamps.

A prompt that contains `play:ID:COUNT:RATE` is answered with COUNT tokens, RATE a second. Each token is its number and
the time when it was written (`~17@81234567890; `, microseconds of the machine's monotonic clock, which all processes
share). So a reader behind any server can tell missing, repeated and late tokens. The first token waits for `POST
/go/ID`, so that all readers are connected. `GET /plays/ID` returns how often ID was asked and how each play ended.
`call:ID:TOOL` is answered with one call of TOOL, and with a play of a few tokens after the result. Every peer gets the
same tokens at the same pace. `python -m bench.peers.model` prints the server's port.
"""

import asyncio
import json
import re
import sys
import time
from collections import defaultdict

import msgspec
import uvloop

from bench.peers.scripted import SCRIPT, Play, token

GATE_SECONDS = 20.0
"""The time that a play waits for its readers. After this time it begins without them, so that no peer hangs."""

AFTER_TOOL_TOKENS = 5


class _Body(msgspec.Struct):
    """The part of a request that the model reads."""

    messages: list[dict[str, object]]
    stream: bool = False
    tools: list[dict[str, object]] = []


class Model:
    def __init__(self) -> None:
        self._plays: defaultdict[str, list[Play]] = defaultdict(list)
        self._gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, one after the other."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"(?i)\r\ncontent-length: *(\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                path = head.split(" ", 2)[1]
                if path.startswith("/go/"):
                    self._gates[path[4:]].set()
                    _whole(writer, b"{}")
                elif path.startswith("/plays/"):
                    _whole(writer, msgspec.json.encode(self._plays[path[7:]]))
                elif path.endswith("/chat/completions"):
                    await self._answer(msgspec.json.decode(body, type=_Body), reader, writer)
                else:
                    _whole(writer, b'{"object":"list","data":[{"id":"scripted","object":"model"}]}')
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, body: _Body, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scripts = SCRIPT.findall(json.dumps(body.messages))
        kind, chat, first, rate = scripts[-1] if scripts else ("play", "", "0", "0")
        if not body.stream or not scripts:
            _whole(writer, json.dumps(_completion({"role": "assistant", "content": "Fine"}, "message")).encode())
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
            b"Cache-Control: no-cache\r\n\r\n"
        )
        has_result = any(message.get("role") == "tool" for message in body.messages)
        if kind == "call" and not has_result:
            function = {"name": first, "arguments": '{"what":"it"}'}
            call = {"index": 0, "id": f"call-{chat}", "type": "function", "function": function}
            _chunk(writer, {"role": "assistant", "tool_calls": [call]})
            _end(writer, "tool_calls")
            return
        count, pace = (AFTER_TOOL_TOKENS, 100) if kind == "call" else (int(first), int(rate))
        play = Play()
        self._plays[chat].append(play)
        _chunk(writer, {"role": "assistant", "content": ""})
        gone = asyncio.ensure_future(reader.read(1))
        try:
            if kind == "play":
                await asyncio.wait(
                    [gone, asyncio.ensure_future(self._gates[chat].wait())],
                    timeout=GATE_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            begun = time.monotonic()
            for number in range(count):
                if gone.done() or writer.transport.is_closing():
                    play.cut = True
                    raise ConnectionError("who asked went away")
                _chunk(writer, {"content": token(number)})
                play.written += 1
                await asyncio.sleep(max(0.0, begun + (number + 1) / pace - time.monotonic()))
            play.ended = True
        finally:
            gone.cancel()
        _end(writer, "stop")
        await asyncio.gather(gone, return_exceptions=True)


def _completion(part: dict[str, object], key: str, finish_reason: str | None = None) -> dict[str, object]:
    choice = {"index": 0, key: part, "finish_reason": finish_reason or ("stop" if key == "message" else None)}
    kind = "chat.completion" if key == "message" else "chat.completion.chunk"
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "scripted", "choices": [choice]}


def _chunk(writer: asyncio.StreamWriter, delta: dict[str, object], finish_reason: str | None = None) -> None:
    data = b"data: " + json.dumps(_completion(delta, "delta", finish_reason)).encode() + b"\n\n"
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def _end(writer: asyncio.StreamWriter, finish_reason: str) -> None:
    _chunk(writer, {}, finish_reason)
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


def _whole(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


async def main() -> None:
    server = await asyncio.start_server(Model().serve, "127.0.0.1", 0, backlog=1_024, limit=4 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    # The parent process holds the input open, so the input ends when the parent ends, even by a crash.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
