"""A plain application of uvicorn and Starlette, written as their documentation shows. It is the baseline of
`bench.memory` and `bench.join`.

`/bare` streams one comment and then nothing; `/queue` waits at its own queue, as an application that sends events does;
`/bytes?count=N` answers N bytes from memory. It imports no module of the product. The HTTP parser and the event loop
are those of our server.
"""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

__all__ = ["app", "plain_server"]

START_SECONDS = 30.0

_kept: dict[int, bytes] = {}


async def _bare(_: Request) -> Response:
    async def said() -> AsyncIterator[bytes]:
        yield b"\n: hb \n\n"
        await asyncio.Event().wait()

    return StreamingResponse(said(), media_type="text/event-stream")


async def _queue(_: Request) -> Response:
    queue: asyncio.Queue[bytes] = asyncio.Queue(100)
    queue.put_nowait(b"\n: hb \n\n")

    async def said() -> AsyncIterator[bytes]:
        while True:
            yield await queue.get()

    return StreamingResponse(said(), media_type="text/event-stream")


async def _bytes(request: Request) -> Response:
    count = int(request.query_params["count"])
    if count not in _kept:
        _kept[count] = b"x" * count + b"\n: hb "
    return Response(_kept[count], media_type="text/event-stream")


app = Starlette(routes=[Route("/bare", _bare), Route("/queue", _queue), Route("/bytes", _bytes)])


@contextmanager
def plain_server() -> Iterator[tuple[str, int]]:
    """Run the application in its own process for a block. Yields its address and its process id. Raises
    TimeoutError."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    words = ["bench.plain_app:app", "--port", str(port), "--http", "httptools", "--loop", "uvloop", "--no-access-log"]
    process = subprocess.Popen([sys.executable, "-m", "uvicorn", *words, "--log-level", "error"])
    try:
        _wait_for(port)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise TimeoutError("the plain server does not listen") from None
            time.sleep(0.02)
