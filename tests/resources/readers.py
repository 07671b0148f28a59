"""Thousands of readers as raw sockets, which keep the bytes of an event stream or read none.

A reader costs a socket and a buffer, because its stream is parsed only at the end and equal streams are folded once.
Every stream is checked with the product's own reducer, as a client does.
"""

import asyncio
import re
import resource
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Self

from tests.support.reader import Watcher
from threadcast_protocol.framing.sse import EventFrame, FrameParser

__all__ = ["HerdReader", "StalledReader", "allow_open_files", "fold_all"]

CHUNK = re.compile(rb"([0-9a-f]+)\r\n")


def allow_open_files(count: int) -> int:
    """Raise this process's bound on open files, which its children inherit; returns the new bound."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(soft, wanted)


class StalledReader:
    """Asks for a stream and never reads a byte of it."""

    def __init__(self, url: str, chat_id: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self._socket.settimeout(10)
        self._socket.connect((host, int(port)))
        self._socket.sendall(_request(chat_id, ""))

    def close(self) -> None:
        self._socket.close()


class HerdReader(asyncio.Protocol):
    """One subscription. `has_some` is set when a piece arrives, and `ended` at the end of the stream."""

    def __init__(self, chat_id: str, last_event_id: str = "") -> None:
        self.chat_id = chat_id
        self.ended = asyncio.Event()
        self.has_some = asyncio.Event()
        self.is_resumed = bool(last_event_id)
        self._last_event_id = last_event_id
        self._pieces: list[bytes] = []
        self._transport: asyncio.Transport | None = None

    async def open(self, url: str) -> Self:
        host, port = url.removeprefix("http://").split(":")
        await asyncio.get_running_loop().create_connection(lambda: self, host, int(port))
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(_request(self.chat_id, self._last_event_id))

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self.has_some.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_some.set()
        self.ended.set()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def holds(self, words: bytes) -> bool:
        """Return whether one of the last four pieces holds these bytes."""
        return words in b"".join(self._pieces[-4:])

    @property
    def body(self) -> bytes:
        """Return the whole stream, without the chunked coding of HTTP."""
        raw = b"".join(self._pieces)
        head, _, rest = raw.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head[:200]
        found: list[bytes] = []
        while (size := CHUNK.match(rest)) and int(size[1], 16):
            end = size.end() + int(size[1], 16)
            found.append(rest[size.end() : end])
            rest = rest[end + 2 :]
        return b"".join(found)

    @property
    def last_event_id(self) -> str:
        ids = re.findall(rb"(?m)^id: ?(\S+)$", self.body)
        return ids[-1].decode() if ids else self._last_event_id

    @property
    def retry_ms(self) -> int | None:
        """Return the milliseconds of the last `retry`, if it ends the stream."""
        told = re.search(rb"\nretry: ?(\d+)\n+$", self.body)
        return int(told[1]) if told else None


def fold_all(
    readers: Iterable[HerdReader], before: dict[HerdReader, Watcher] | None = None
) -> dict[HerdReader, Watcher]:
    """Fold the stream of each reader. `before` has the watchers of readers that resumed after an earlier stream."""
    known: dict[tuple[str, bytes, int], Watcher] = {}
    found: dict[HerdReader, Watcher] = {}
    for reader in readers:
        start = (before or {}).get(reader)
        key = (reader.chat_id, reader.body, id(start))
        if key not in known:
            watcher = known[key] = Watcher(reader.chat_id)
            if start is not None:
                watcher.state = start.state
                watcher.frames = list(start.frames)
            for frame in FrameParser().feed(reader.body):
                if isinstance(frame, EventFrame):
                    watcher.take(frame)
        found[reader] = known[key]
    return found


async def open_all(url: str, readers: Sequence[HerdReader], at_once: int = 200) -> None:
    """Connect all readers as fast as the server accepts connections, and wait until each reader has received its first
    bytes."""
    gate = asyncio.Semaphore(at_once)

    async def one(reader: HerdReader) -> None:
        async with gate:
            await reader.open(url)
            await reader.has_some.wait()

    await asyncio.gather(*(one(reader) for reader in readers))


def close_all(readers: Iterable[HerdReader | StalledReader]) -> None:
    for reader in readers:
        with suppress(OSError):
            reader.close()


def _request(chat_id: str, last_event_id: str) -> bytes:
    place = f"Last-Event-ID: {last_event_id}\r\n" if last_event_id else ""
    return f"GET /v1/chats/subscribe?chat_id={chat_id} HTTP/1.1\r\nHost: 127.0.0.1\r\n{place}\r\n".encode()
