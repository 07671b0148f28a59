"""A good Python server without a relay: it has a queue and a task for each reader, under uvicorn with uvloop.

`python -m bench.plain_sse starlette|sse-starlette PAYLOAD_FILE` is controlled like `native/send.c`: it prints its port,
and a line "go COUNT INTERVAL_US" on stdin puts the file's event COUNT times into the queue of every reader. Starlette
sends the finished block; sse-starlette makes the block from data and id for each reader, as usual. Neither has a log, a
store or slow clients, so both are measured at their best.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

QUEUE_MAX_EVENTS = 1_000

queues: set["asyncio.Queue[bytes]"] = set()


async def ready_made(request: Request) -> Response:
    async def blocks() -> AsyncIterator[bytes]:
        queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE_MAX_EVENTS)
        queues.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            queues.discard(queue)

    return StreamingResponse(blocks(), media_type="text/event-stream")


async def made_for_each(request: Request) -> Response:
    async def events() -> AsyncIterator[ServerSentEvent]:
        queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE_MAX_EVENTS)
        queues.add(queue)
        try:
            while True:
                data, _, id_ = (await queue.get()).decode().strip().removeprefix("data: ").partition("\nid: ")
                yield ServerSentEvent(data, id=id_, sep="\n")
        finally:
            queues.discard(queue)

    return EventSourceResponse(events())


async def obey(payload: bytes) -> None:
    """Carry out the orders on stdin until it ends."""
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        _, count, interval_us = line.split()
        at = loop.time()
        for _ in range(int(count)):
            at += int(interval_us) / 1e6
            await asyncio.sleep(at - loop.time())
            for queue in queues:
                queue.put_nowait(payload)
        print(json.dumps({"connections": len(queues), "sent": len(queues) * int(count)}), flush=True)


async def main(kind: str, payload: bytes) -> None:
    endpoint = {"starlette": ready_made, "sse-starlette": made_for_each}[kind]
    app = Starlette(routes=[Route("/{path:path}", endpoint)])
    config = uvicorn.Config(
        app, port=0, loop="uvloop", http="httptools", ws="none", lifespan="off", access_log=False, log_level="error"
    )
    server = uvicorn.Server(config)
    listener = config.bind_socket()
    print(listener.getsockname()[1], flush=True)
    serving = asyncio.create_task(server.serve([listener]))
    await obey(payload)
    server.force_exit = server.should_exit = True
    await serving


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(sys.argv[1], Path(sys.argv[2]).read_bytes()))
