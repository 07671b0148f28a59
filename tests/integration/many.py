"""Watches a stream of many chats as a client does: each chat is folded with the product's reducer, and no chat may have
a gap.

The ids of such a stream are opaque to clients, so `seq` numbers the events of each chat from its snapshot.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import httpx2

from tests.support.fleet import running_fleet
from tests.support.reader import Watcher
from tests.support.server import DEADLINE_SECONDS, Process
from threadcast_protocol.fold.reducer import reduce
from threadcast_protocol.fold.snapshot import state_from_snapshot
from threadcast_protocol.framing.codec import decode_event, decode_snapshot
from threadcast_protocol.framing.sse import CommentFrame, EventFrame, FrameParser, RetryFrame
from threadcast_protocol.framing.stream_ids import parse_stream_ids
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["ManyWatcher", "TwoWebs", "two_webs", "watching_many"]


class ChatOfMany(Watcher):
    """One chat of the stream. A chat's position comes from the stream's id, which a real client does not parse."""

    def take_of(self, body: JsonObject, stream_id: str) -> None:
        place = parse_stream_ids(stream_id, [self.chat_id])[self.chat_id]
        assert int(body["seq"]) == place.seq
        self.frames.append(body)
        raw = json.dumps({key: value for key, value in body.items() if key not in ("chat_id", "seq")}).encode()
        if body["type"] == "snapshot":
            assert place.seq == 0
            self.snapshots += 1
            self.state = state_from_snapshot(self.chat_id, decode_snapshot(raw), place.position)
            return
        assert self.state is not None, "an event before any snapshot"
        assert place.position == self.state.position + 1, f"a hole: {place.position} after {self.state.position}"
        event = decode_event(raw)
        self.events.append(event)
        self.state = reduce(self.state, place.position, event)


class ManyWatcher:
    """All chats of one stream. `transient` holds the frames without an id. The stream is read only while `is_reading`
    is set."""

    def __init__(self) -> None:
        self.chats: dict[str, ChatOfMany] = {}
        self.transient: list[JsonObject] = []
        self.comments = 0
        self.has_goodbye = False
        self.last_id = ""
        self.has_ended = False
        self.is_reading = anyio.Event()
        self.is_reading.set()
        self._changed = anyio.Event()

    def take(self, frame: EventFrame | CommentFrame | RetryFrame) -> None:
        if isinstance(frame, EventFrame):
            body: JsonObject = json.loads(frame.data)
            if "seq" in body:
                self.last_id = frame.last_event_id
                self.chats.setdefault(body["chat_id"], ChatOfMany(body["chat_id"])).take_of(body, self.last_id)
            else:
                assert frame.last_event_id == self.last_id, "a transient frame has no id"
                self.transient.append(body)
        elif isinstance(frame, CommentFrame):
            self.comments += 1
        self.has_goodbye = isinstance(frame, RetryFrame)
        self.notify()

    def notify(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def until(self, wanted: Callable[["ManyWatcher"], object]) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            while not wanted(self):
                await self._changed.wait()

    async def at_rest(self, chat_ids: Iterable[str], runs: int = 1) -> None:
        """Wait until each of these chats has ended this many runs, and rests."""
        for chat_id in chat_ids:
            await self.until(partial(_rests, chat_id, runs))

    def seqs(self, chat_id: str) -> list[int]:
        return [int(frame["seq"]) for frame in self.chats[chat_id].frames]

    def said(self, kind: str, chat_id: str) -> list[JsonObject]:
        """Return the transient frames of one kind and chat."""
        return [body for body in self.transient if (body["type"], body["chat_id"]) == (kind, chat_id)]


def _rests(chat_id: str, runs: int, watcher: ManyWatcher) -> bool:
    state = watcher.chats[chat_id].state if chat_id in watcher.chats else None
    return (
        state is not None
        and state.is_at_rest
        and state.runtime.queue_size == 0
        and sum(1 for key in state.path if state.nodes[key].role == "user") >= runs
        and state.runtime.outcome is not None
    )


@asynccontextmanager
async def watching_many(
    url: str,
    chat_ids: Iterable[str],
    *,
    query: str = "",
    headers: dict[str, str] | None = None,
    watcher: ManyWatcher | None = None,
) -> AsyncIterator[ManyWatcher]:
    """Open a stream of these chats until the block ends; the block begins after the head of the answer."""
    mine = watcher or ManyWatcher()
    address = f"{url}/v1/chats/subscribe?" + "&".join(
        [f"chat_id={chat_id}" for chat_id in chat_ids] + [query] * bool(query)
    )
    timeout = httpx2.Timeout(DEADLINE_SECONDS, read=60)
    async with httpx2.AsyncClient(timeout=timeout) as client, anyio.create_task_group() as tasks:
        opened = anyio.Event()

        async def read() -> None:
            parser = FrameParser()
            try:
                async with client.stream("GET", address, headers=headers or {}) as answer:
                    assert answer.status_code == 200, await answer.aread()
                    opened.set()
                    async for chunk in answer.aiter_raw():
                        for frame in parser.feed(chunk):
                            mine.take(frame)
                        await mine.is_reading.wait()
            except httpx2.TransportError:
                opened.set()
            mine.has_ended = True
            mine.notify()

        tasks.start_soon(read)
        with anyio.fail_after(DEADLINE_SECONDS):
            await opened.wait()
        yield mine
        tasks.cancel_scope.cancel()


class TwoWebs:
    """Two web processes and a worker over one store."""

    def __init__(self, one: Process, two: Process) -> None:
        self.one = one
        self.two = two


@asynccontextmanager
async def two_webs(store_url: str, directory: Path, *options: str) -> AsyncIterator[TwoWebs]:
    with running_fleet(directory, store_url, *options) as fleet:
        await fleet.open(1)
        yield TwoWebs(fleet.webs[0], await fleet.add_web())
