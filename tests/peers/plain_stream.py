"""A stream of events that tells its readers to wait, after a lost connection, half of their default pause.

If our server sends a shorter `retry`, a reader of our server reconnects before a reader of this stream; if our server
sends no `retry`, a reader of our server reconnects later.
"""

import asyncio
from typing import Self

__all__ = ["PlainStream"]

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Access-Control-Allow-Origin: *\r\nConnection: close\r\n\r\n"
)
RETRY_MS = 1_500
"""Half of the default pause of Chromium and npm's eventsource."""


class PlainStream:
    """Listens on `url` inside `async with`. Each connection gets one event and then nothing more."""

    def __init__(self) -> None:
        self.url = ""
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self._writers.append(writer)
        writer.write(HEAD + b"retry: %d\ndata: {}\nid: 1\n\n" % RETRY_MS)
        await writer.drain()

    def cut(self) -> None:
        """Reset all open connections; new connections are still served."""
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()
