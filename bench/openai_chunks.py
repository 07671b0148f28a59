"""CPU of one streamed chunk: our OpenAI adapter against the SDK's typed stream and bare httpx2, in the same run.

A child process streams to many readers at once over real HTTP on loopback, a chunk every 20 ms to each, so that every
chunk is a read of its own, as from a real model. This process reads with each of the three in turn and prints its own
CPU per chunk. Bare httpx2 is the floor: what lies above it is ours, or the SDK's. The ratios are the result; absolute
numbers are this machine's. Run it as `python -m bench.openai_chunks [streams] [chunks]`.
"""

import asyncio
import json
import multiprocessing
import socket
import sys
import time
from collections.abc import Awaitable, Callable

import httpx2
import uvloop
from openai import AsyncOpenAI

from protocol.messages import Message
from server.providers.base import Request, TextDelta
from server.providers.openai_chat import OpenAIChat

CHUNK_INTERVAL_SECONDS = 0.02
"""50 tokens a second, the pace that DESIGN §13 budgets for."""


def serve(listener: socket.socket, chunks_count: int) -> None:
    """Answers every request with the same stream."""

    def event(delta: dict[str, str], finish_reason: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return b"data: " + json.dumps({**head, "choices": [choice]}).encode() + b"\n\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        word = event({"content": "word "}, None)
        for _ in range(chunks_count):
            writer.write(word)
            await asyncio.sleep(CHUNK_INTERVAL_SECONDS)
        writer.write(event({}, "stop") + b"data: [DONE]\n\n")
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, sock=listener)
        await server.serve_forever()

    uvloop.run(run())


async def compare(base_url: str, streams_count: int, chunks_count: int) -> None:
    provider = OpenAIChat("bench", base_url=base_url, api_key="x")
    request = Request(model="m", messages=[Message(role="user", content="go", message_id="u")])
    client = AsyncOpenAI(base_url=base_url, api_key="x")
    bare_client = httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None))

    async def bare() -> int:
        async with bare_client.stream("POST", f"{base_url}/chat/completions", json={}) as response:
            return b"".join([piece async for piece in response.aiter_bytes()]).count(b"word ")

    async def ours() -> int:
        return sum([isinstance(delta, TextDelta) async for delta in provider.stream(request)])

    async def typed() -> int:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "go"}], stream=True
        )
        return sum([bool(chunk.choices[0].delta.content) async for chunk in stream])

    async def microseconds(read: Callable[[], Awaitable[int]]) -> float:
        await read()  # imports and caches
        begun = time.process_time()
        counts = await asyncio.gather(*(read() for _ in range(streams_count)))
        if set(counts) != {chunks_count}:
            raise SystemExit(f"a stream came short: {counts}")
        return (time.process_time() - begun) / (streams_count * chunks_count) * 1e6

    floor, ours_us, typed_us = await microseconds(bare), await microseconds(ours), await microseconds(typed)
    print(f"CPU per chunk, {streams_count} streams of {chunks_count} chunks, 50 a second each:")
    print(f"  httpx2 alone {floor:.0f} us, ours {ours_us:.0f} us, typed {typed_us:.0f} us")
    print(f"  typed / ours = {typed_us / ours_us:.1f}")
    print(f"  above httpx2, typed / ours = {(typed_us - floor) / (ours_us - floor):.1f}")
    await provider.aclose()
    await client.close()
    await bare_client.aclose()


def main() -> None:
    streams_count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    chunks_count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    listener = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    child = multiprocessing.get_context("fork").Process(target=serve, args=(listener, chunks_count), daemon=True)
    child.start()
    try:
        uvloop.run(compare(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", streams_count, chunks_count))
    finally:
        child.terminate()
        child.join(5)


if __name__ == "__main__":
    main()
