"""Measures the memory of stalled readers in the process and in the kernel, and whether stalled readers delay other
readers.

The measuring process owns the chat and appends entries that contain the time. A web process streams them, and one
reader compares the times. Rounds in which the other readers read alternate with rounds in which as many readers stall.
The stalled readers join at different positions, so that they share no bytes. Part of `bench.memory`.
"""

import asyncio
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.integration.store_fixtures import claim, command
from tests.support.fleet import fleet_on_new_store

from bench.figures import Figure, figure, progress, quantile, ratio
from bench.processes import rss_bytes
from bench.streams import Streams, get
from threadcast.store.ports import Appended, AppendRequest
from threadcast.store.redis.store import RedisStore
from threadcast_protocol.wire.ids import EntryId, Head
from threadcast_protocol.wire.principal import LOCAL

__all__ = ["stalled_figures"]

USER_MAX_BYTES = 300_000
KERNEL_MAX_BYTES = 200_000
"""The limits for a stalled reader."""

APPENDS = 200
INTERVAL_SECONDS = 0.02
ENTRY_BYTES = 8_000
"""The entries of a round: 1.6 MB at 50 entries a second, so that the queue of a stalled reader (256 kB) overflows
early."""

RECEIVE_BYTES = 4_096
"""The receive buffer of a stalled client: small, so that the server's kernel holds the rest."""

CHAT = "stalled"


def stalled_figures(count: int, rounds: int) -> list[Figure]:
    """Measure `count` stalled readers."""
    return asyncio.run(_measured(count, rounds))


async def _measured(count: int, rounds: int) -> list[Figure]:
    calm: list[float] = []
    beside: list[float] = []
    user: list[float] = []
    kernel: list[float] = []
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        fleet = stack.enter_context(fleet_on_new_store(Path(directory)))
        web = await fleet.add_web(limits={"STREAMS_PER_PRINCIPAL": "20000"})
        async with RedisStore(fleet.store.url) as store:
            feed = _Feed(store, await _owned_head(store))
            await _round(feed, web.url, [])
            for number in range(rounds):
                progress(f"memory: {count} stalled readers, round {number + 1} of {rounds}")
                readers = [await _Reader(web.url).open() for _ in range(count)]
                calm.append(quantile(await _round(feed, web.url, readers), 0.99))
                await asyncio.sleep(1)
                before = rss_bytes(web.pid)
                with Streams(web.url, RECEIVE_BYTES) as stalled:
                    for _ in range(count):
                        stalled.ask([get(f"/v1/chats/subscribe?chat_id={CHAT}")])
                        await feed.append()
                    beside.append(quantile(await _round(feed, web.url, []), 0.99))
                    user.append((rss_bytes(web.pid) - before) / count)
                    kernel.append(_kernel_bytes(web.url) / count)
                await asyncio.sleep(1)
    return [
        figure("stalled_user", "stalled reader, memory of the process", _kb(user), "kB", bar=USER_MAX_BYTES / 1_000),
        figure("stalled_kernel", "stalled reader, its socket", _kb(kernel), "kB", bar=KERNEL_MAX_BYTES / 1_000),
        figure("calm_p99", f"append to a reader, p99, {count} others read", [each * 1_000 for each in calm], "ms"),
        figure("beside_p99", f"append to a reader, p99, {count} others stall", [each * 1_000 for each in beside], "ms"),
        ratio("beside_calm", "with stalled readers / without", beside, calm, bar=1.1),
    ]


async def _owned_head(store: RedisStore) -> str:
    """Create a chat of the local caller that this process owns. Returns its head."""
    await store.post(command(chat_id=CHAT, owner=LOCAL.id))
    await claim(store, "bench", CHAT, 3_600_000)
    return (await store.take(CHAT, "bench", "wake")).head


def _kb(values: list[float]) -> list[float]:
    return [value / 1_000 for value in values]


class _Feed:
    """Appends entries with one event that contains the time."""

    def __init__(self, store: RedisStore, head: str) -> None:
        self._store = store
        self._head = Head.parse(head)

    async def append(self) -> None:
        before = self._head
        position = before.position + 1
        after = Head(EntryId(before.entry_id.epoch, before.entry_id.n + 1), f"{position:016x}", position)
        padding = "x" * ENTRY_BYTES
        event = f'[{{"type":"runtime_updated","state":"idle","status_text":"at {time.monotonic():.6f} {padding}"}}]'
        request = AppendRequest(
            chat_id=CHAT, expected=str(before), head=str(after), version=1, events=event.encode(), owner=LOCAL.id
        )
        assert await self._store.append(request) is Appended.OK
        self._head = after


class _Reader(asyncio.Protocol):
    """Records the delay of each event, in seconds."""

    def __init__(self, url: str) -> None:
        self.delays: list[float] = []
        self.has_some = asyncio.Event()
        self._url = url
        self._transport: asyncio.Transport | None = None

    async def open(self) -> "_Reader":
        host, port = self._url.removeprefix("http://").split(":")
        await asyncio.get_running_loop().create_connection(lambda: self, host, int(port))
        await self.has_some.wait()
        self.delays.clear()
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(get(f"/v1/chats/subscribe?chat_id={CHAT}"))

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self.has_some.set()
        found = data.find(b'"at ')
        if found >= 0:
            self.delays.append(now - float(data[found + 4 : data.index(b" ", found + 4)]))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def _round(feed: _Feed, url: str, others: list[_Reader]) -> list[float]:
    """Return the delays of the events at one reader."""
    reader = await _Reader(url).open()
    next_at = time.monotonic()
    for _ in range(APPENDS):
        await feed.append()
        next_at += INTERVAL_SECONDS
        await asyncio.sleep(max(0.0, next_at - time.monotonic()))
    for each in (reader, *others):
        each.close()
    assert len(reader.delays) > APPENDS * 0.9, f"{len(reader.delays)} of {APPENDS} events came"
    return reader.delays


def _kernel_bytes(url: str) -> int:
    """Return the bytes that the kernel holds for the server's connections: skmem's r, w, f, o and bl (ss(8))."""
    port = url.rpartition(":")[2]
    said = subprocess.run(["ss", "-tmnH", f"sport = :{port}"], capture_output=True, text=True, check=True).stdout
    total = 0
    for line in said.splitlines():
        if "skmem:(" in line:
            fields = line.partition("skmem:(")[2].partition(")")[0].split(",")
            total += sum(int(field.lstrip("abcdefghijklmnopqrstuvwxyz")) for field in fields if _is_held(field))
    return total


def _is_held(field: str) -> bool:
    return field.rstrip("0123456789") in ("r", "w", "f", "o", "bl")
