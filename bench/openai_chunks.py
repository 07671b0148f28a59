"""Measures the CPU time of one streamed chunk: our OpenAI adapter with the assembler, compared with the SDK's typed
stream in the same run.

Three paths are measured. `alone` uses no sockets and measures the conversion from bytes to operations; its bar is 25
us. The other two paths read the answers of a child process over real HTTP on loopback. On one path the child pauses
after every chunk, so that each chunk is a separate read as with a real model; on the other the child writes as fast as
it can, with many chunks in a read. Both paths are read by bare httpx2 (the floor), by our adapter and by the SDK's
typed stream. All figures are this process's own CPU time. Only the ratios matter; the absolute numbers depend on the
machine. To repeat: `python -m bench.openai_chunks [streams] [chunks]`, by default 100 of each.
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

from threadcast.agent_loop.answer.assembler import Assembler
from threadcast.providers.base import Request
from threadcast.providers.openai.chat import ChunkReader, OpenAIChat
from threadcast.providers.sse_split import SseSplitter
from threadcast.settings import Provider as ProviderSettings
from threadcast.settings import Secret
from threadcast_protocol.wire.deltas import AppendContent
from threadcast_protocol.wire.messages import Message

CHUNK_INTERVAL_SECONDS = 0.02
"""The pause between chunks: 50 tokens a second, the pace of the budget (DESIGN §13)."""

ALONE_MAX_US = 25
"""The allowed CPU time of a chunk in adapter and assembler, in microseconds."""

ALONE_CHUNKS = 20_000
"""The number of repetitions: a fifth of a second of CPU time, far above the clock's resolution."""

EVENTS_PER_WRITE = 50
"""The number of events in each write of the fast path, 8 kB together. One read receives several writes."""

FAST_FACTOR = 20
"""The factor for the number of chunks of the fast path, because it takes less time."""


def event(delta: dict[str, str], finish_reason: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**head, "choices": [choice]}).encode() + b"\n\n"


WORD = event({"content": "word "}, None)


def serve(listener: socket.socket, chunks_count: int) -> None:
    """Answer every request with the same stream, under `/fast/` without pauses."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        if b" /fast/" in head:
            for _ in range(chunks_count * FAST_FACTOR // EVENTS_PER_WRITE):
                writer.write(WORD * EVENTS_PER_WRITE)
                await writer.drain()
        else:
            for _ in range(chunks_count):
                writer.write(WORD)
                await asyncio.sleep(CHUNK_INTERVAL_SECONDS)
        writer.write(event({}, "stop") + b"data: [DONE]\n\n")
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, sock=listener)
        await server.serve_forever()

    uvloop.run(run())


def assembler() -> Assembler:
    return Assembler(set(), lambda: "call")


def alone_us() -> float:
    """Turn the bytes of a stream into operations, event by event."""
    splitter, reader, assembled = SseSplitter(), ChunkReader(), assembler()
    count = 0
    begun = time.process_time()
    for _ in range(ALONE_CHUNKS):
        for data in splitter.feed(WORD):
            for delta in reader.feed(data):
                count += assembled.feed(delta) is not None
    spent = time.process_time() - begun
    if count < ALONE_CHUNKS:
        raise SystemExit(f"{count} operations of {ALONE_CHUNKS} chunks")
    return spent / ALONE_CHUNKS * 1e6


async def compare(base_url: str, streams_count: int, chunks_count: int) -> None:
    """Print the cost of a chunk on one path, for bare httpx2, our adapter and the typed stream."""
    provider = OpenAIChat("bench", ProviderSettings(base_url=base_url, api_key=Secret("x")))
    request = Request(model="m", messages=[Message(role="user", content="go", message_id="u")])
    client = AsyncOpenAI(base_url=base_url, api_key="x")
    bare_client = httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None))

    async def bare() -> int:
        async with bare_client.stream("POST", f"{base_url}/chat/completions", json={}) as response:
            return b"".join([piece async for piece in response.aiter_bytes()]).count(b"word ")

    async def ours() -> int:
        assembled = assembler()
        ops = [assembled.feed(delta) async for delta in provider.stream(request)]
        return sum([isinstance(op, AppendContent) for op in ops])

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
            raise SystemExit(f"a stream was incomplete: {counts}")
        return (time.process_time() - begun) / (streams_count * chunks_count) * 1e6

    floor, ours_us, typed_us = await microseconds(bare), await microseconds(ours), await microseconds(typed)
    print(f"  httpx2 alone {floor:.1f} us, ours {ours_us:.1f} us, typed {typed_us:.1f} us")
    print(f"  typed / ours = {typed_us / ours_us:.1f}, above httpx2 {(typed_us - floor) / (ours_us - floor):.1f}")
    await provider.aclose()
    await client.close()
    await bare_client.aclose()


def main() -> None:
    streams_count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    chunks_count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    if chunks_count * FAST_FACTOR % EVENTS_PER_WRITE:
        raise SystemExit("the number of chunks must be a multiple of 5")
    alone = min(alone_us() for _ in range(5))  # the least disturbed of five runs
    verdict = "within" if alone <= ALONE_MAX_US else "ABOVE"
    print(f"Adapter and assembler alone: {alone:.1f} us a chunk, {verdict} the bar of {ALONE_MAX_US} us")
    listener = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    child = multiprocessing.get_context("fork").Process(target=serve, args=(listener, chunks_count), daemon=True)
    child.start()
    root = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        print(f"A chunk a read, {streams_count} streams of {chunks_count} chunks, 50 a second each, CPU per chunk:")
        uvloop.run(compare(f"{root}/v1", streams_count, chunks_count))
        streams_count, chunks_count = max(1, streams_count // 10), chunks_count * FAST_FACTOR
        print(f"Many chunks a read, {streams_count} streams of {chunks_count} chunks, CPU per chunk:")
        uvloop.run(compare(f"{root}/fast/v1", streams_count, chunks_count))
    finally:
        child.terminate()
        child.join(5)


if __name__ == "__main__":
    main()
