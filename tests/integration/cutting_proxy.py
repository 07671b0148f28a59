"""A proxy between a client and its server that cuts every connection after a number of bytes, or drops an answer.

The proxy works on loopback only, with one task for each direction. The proxy reads only the beginning of each request
and forwards all other bytes unread.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskGroup

__all__ = ["CuttingProxy", "cutting"]


class CuttingProxy:
    """The proxy cuts each connection after `cut_after_bytes` bytes from the server; None cuts no connection. The next
    request that begins with `loses_answers_to` reaches the server, and the proxy drops its answer. `cuts` counts the
    connections that the proxy has cut."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self.cut_after_bytes: int | None = None
        self.loses_answers_to: bytes | None = None
        self.cuts = 0
        self._port = port

    async def forward(self, near: SocketStream) -> None:
        async with near, await anyio.connect_tcp("127.0.0.1", self._port) as far, anyio.create_task_group() as tasks:
            is_deaf = anyio.Event()
            tasks.start_soon(self._up, near, far, is_deaf, tasks)
            sent = 0
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                while True:
                    data = await far.receive()
                    if is_deaf.is_set():
                        break
                    if self.cut_after_bytes is not None and sent + len(data) >= self.cut_after_bytes:
                        await near.send(data[: max(0, self.cut_after_bytes - sent)])
                        break
                    await near.send(data)
                    sent += len(data)
            self.cuts += 1
            tasks.cancel_scope.cancel()

    async def _up(self, near: SocketStream, far: SocketStream, is_deaf: anyio.Event, tasks: TaskGroup) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                data = await near.receive()
                if self.loses_answers_to is not None and data.startswith(self.loses_answers_to):
                    self.loses_answers_to = None
                    is_deaf.set()  # the server has received the request; the client gets no answer
                await far.send(data)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def cutting(url: str) -> AsyncIterator[CuttingProxy]:
    """Run a proxy to the server at `url` until the block ends."""
    proxy = CuttingProxy(int(url.rpartition(":")[2]))
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        proxy.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.start_soon(listener.serve, proxy.forward)
        yield proxy
        tasks.cancel_scope.cancel()
