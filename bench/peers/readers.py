"""The readers, in their own process: raw sockets that send one request each and search for tokens.

They parse only tokens, so that the peer's framing does not matter and the peer can use both cores. `load.py` starts the
process. Each `Load` is a line of input. When all requests are sent and the heads of the answers have arrived, the
process prints `ready`. After the line `go` it reads until every reader has all tokens or the time is over, and prints a
`Found`. A token that was written before its reader had the head of the answer counts as delivered, but not as late.
"""

import asyncio
import sys
import time

import msgspec
import uvloop

from bench.peers.scripted import TOKEN, Found, Load

SETTLE_SECONDS = 2.0
"""The longest wait for the heads of answers. Some peers send no head before the first token; their loads begin after
this time."""

TAIL_BYTES = 40
"""The length of the longest token. A read may end in the middle of a token."""


class Reader(asyncio.Protocol):
    def __init__(self, tokens: int) -> None:
        self._wanted = tokens
        self._tail = b""
        self._headed_us: int | None = None
        self._seen: set[bytes] = set()
        self.bytes = 0
        self.events = 0
        self.latencies_us: list[int] = []
        self.headed = asyncio.Event()
        self.done = asyncio.Event()
        self.refused = ""

    @property
    def tokens(self) -> int:
        return len(self._seen)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns() // 1000
        self.bytes += len(data)
        self.events += data.count(b"\ndata:")
        if self._headed_us is None:
            self._headed_us = now
            self.headed.set()
            line = data.partition(b"\r\n")[0].decode(errors="replace")
            if " 20" not in line:
                self.refused = line
        data = self._tail + data
        end = 0
        for found in TOKEN.finditer(data):
            end = found.end()
            number = found[1]
            if number not in self._seen:
                self._seen.add(number)
                written_us = int(found[2])
                if written_us >= self._headed_us:
                    self.latencies_us.append(now - written_us)
        self._tail = data[max(end, len(data) - TAIL_BYTES) :]
        if len(self._seen) >= self._wanted:
            self.done.set()

    def connection_lost(self, wrong: Exception | None) -> None:
        self.headed.set()
        self.done.set()


async def read(load: Load) -> Found:
    loop = asyncio.get_running_loop()
    readers: list[Reader] = []
    transports = []
    paused = 0.0
    for ask in sorted(load.asks, key=lambda each: each.pause_seconds):
        if ask.pause_seconds > paused:
            await asyncio.sleep(ask.pause_seconds - paused)
            paused = ask.pause_seconds
        for _ in range(ask.readers):
            transport, reader = await loop.create_connection(lambda: Reader(load.tokens), "127.0.0.1", ask.port)
            transport.write(ask.request)
            readers.append(reader)
            transports.append(transport)
    heads = asyncio.gather(*(reader.headed.wait() for reader in readers))
    await asyncio.wait([asyncio.ensure_future(heads)], timeout=SETTLE_SECONDS)
    print("ready", flush=True)
    go = await loop.run_in_executor(None, sys.stdin.readline)
    ends = asyncio.gather(*(reader.done.wait() for reader in readers))
    await asyncio.wait([asyncio.ensure_future(ends)], timeout=load.timeout_seconds if go == "go\n" else 0)
    for transport in transports:
        transport.abort()
    tokens = sum(reader.tokens for reader in readers)
    return Found(
        tokens=tokens,
        missing=load.tokens * len(readers) - tokens,
        latencies_us=[each for reader in readers for each in reader.latencies_us],
        bytes=sum(reader.bytes for reader in readers),
        events=sum(reader.events for reader in readers),
        refused=next((reader.refused for reader in readers if reader.refused), ""),
    )


async def main() -> None:
    while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        found = await read(msgspec.json.decode(line, type=Load))
        print(msgspec.json.encode(found).decode(), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
