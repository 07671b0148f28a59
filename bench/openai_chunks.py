"""CPU of one streamed chunk: our OpenAI adapter against the SDK's typed stream, in the same run.

A child process serves one canned stream over real HTTP on loopback; this process reads it in turns with both, and
prints the microseconds of its own CPU per chunk and their ratio. The ratio is the result: absolute numbers are this
machine's. Run it as `python -m bench.openai_chunks [chunks] [turns]`.
"""

import asyncio
import json
import multiprocessing
import socket
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from openai import AsyncOpenAI

from protocol.messages import Message
from server.providers.base import Request, TextDelta
from server.providers.openai_chat import OpenAIChat

CHUNK_INTERVAL_SECONDS = 0.0005
"""Long enough that the reader, as with a real model, is woken for each chunk; waiting costs it no CPU."""


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

    asyncio.run(run())


async def measure(read: Callable[[], Awaitable[int]], chunks_count: int) -> float:
    """Microseconds of CPU per chunk."""
    begun = time.process_time()
    if await read() != chunks_count:
        raise SystemExit("the stream came short")
    return (time.process_time() - begun) / chunks_count * 1e6


async def compare(base_url: str, chunks_count: int, turns: int) -> None:
    provider = OpenAIChat("bench", base_url=base_url, api_key="x")
    request = Request(model="m", messages=[Message(role="user", content="go", message_id="u")])
    client = AsyncOpenAI(base_url=base_url, api_key="x")

    async def ours() -> int:
        return sum([isinstance(delta, TextDelta) async for delta in provider.stream(request)])

    async def typed() -> int:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "go"}], stream=True
        )
        return sum([bool(chunk.choices[0].delta.content) async for chunk in stream])

    await ours(), await typed()  # imports and caches
    pairs = [(await measure(ours, chunks_count), await measure(typed, chunks_count)) for _ in range(turns)]
    ours_us, typed_us = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"ours {ours_us:.1f} us, typed {typed_us:.1f} us a chunk; typed / ours = {typed_us / ours_us:.1f}")
    await provider.aclose()
    await client.close()


def main() -> None:
    chunks_count = int(sys.argv[1]) if len(sys.argv) > 1 else 3_000
    turns = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    listener = socket.create_server(("127.0.0.1", 0))
    child = multiprocessing.get_context("fork").Process(target=serve, args=(listener, chunks_count), daemon=True)
    child.start()
    try:
        asyncio.run(compare(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", chunks_count, turns))
    finally:
        child.terminate()
        child.join(5)


if __name__ == "__main__":
    main()
