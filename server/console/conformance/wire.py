"""One open event stream of the server under test: its blocks, checked byte by byte, and a `Stream` for each chat on it.

`Wire.read` takes the bytes of a response. Whatever waits for something on the stream waits in `until`, with a deadline.
"""

import json
import re
from collections.abc import Callable

import anyio
import httpx2

from protocol.messages import JsonObject
from server.console.conformance.framing import Block, Framing
from server.console.conformance.stream import Stream

__all__ = ["ORDERLY_END", "Wire", "broken_headers"]

_STREAM_HEADERS = {
    "content-type": re.compile(r"text/event-stream(; ?charset=utf-8)?", re.IGNORECASE),
    "cache-control": re.compile(r"(.*,)? *no-cache *(,.*)?", re.IGNORECASE),
    "x-accel-buffering": re.compile("no"),
}
"""PROTOCOL §4. HTTP lets a server add a charset and further directives; none of them may allow storing."""

ORDERLY_END = "the server ended the stream"


def broken_headers(response: httpx2.Response) -> dict[str, str]:
    """Return the rules that the headers of an event stream break, each with a sentence."""
    broken: dict[str, str] = {}
    for name, wanted in _STREAM_HEADERS.items():
        value = response.headers.get(name)
        if value is None or not wanted.fullmatch(value):
            must = "text/event-stream" if name == "content-type" else "no-cache" if name == "cache-control" else "no"
            broken[f"headers-{name}"] = f"an event stream must have the header {name}: {must}; it has {value!r}"
    return broken


class Wire:
    """`chat_ids`: the chats it was opened for. `is_open_to_all`: a named stream, to which chats may be added later.
    `is_resumed`: it was opened with an id, so it need not begin with snapshots."""

    def __init__(
        self,
        chat_ids: list[str],
        *,
        is_native: bool = True,
        has_plain_ids: bool = False,
        is_open_to_all: bool = False,
        is_resumed: bool = False,
    ) -> None:
        self.blocks: list[Block] = []
        self.ended: str | None = None
        """Why nothing more will come."""
        self.broken: dict[str, str] = {}
        self.is_native = is_native
        self.is_resumed = is_resumed
        self._is_open_to_all = is_open_to_all
        self._framing = Framing(is_native=is_native)
        self._changed = anyio.Event()
        self._feed_seq = 0
        self.chats = {
            chat_id: Stream(chat_id, has_plain_ids=has_plain_ids, is_resumed=is_resumed) for chat_id in chat_ids
        }

    @classmethod
    def of_chat(cls, chat_id: str, *, is_resumed: bool = False) -> "Wire":
        """A stream of one chat without a name."""
        return cls([chat_id], has_plain_ids=True, is_resumed=is_resumed)

    def chat(self, chat_id: str) -> Stream:
        """The part of one chat; empty until something of it comes."""
        if chat_id not in self.chats:
            # Added while the stream runs, perhaps with an id to go on from.
            self.chats[chat_id] = Stream(chat_id, has_plain_ids=False, is_resumed=True)
        return self.chats[chat_id]

    @property
    def heartbeats_count(self) -> int:
        return self._framing.heartbeats_count

    @property
    def has_said_goodbye(self) -> bool:
        """The last line is a `retry`, so that the reader comes back."""
        return self._framing.ends_with_retry

    def feed(self, chunk: bytes) -> None:
        for block in self._framing.feed(chunk):
            self.blocks.append(block)
            if self.is_native:
                self._take(block)
        for rule, sentence in self._framing.broken.items():
            self.broken.setdefault(rule, sentence)
        self._notify()

    def end(self, why: str) -> None:
        self.ended = self.ended or why
        self._notify()

    async def until(self, wanted: Callable[[], object], seconds: float) -> bool:
        """Wait until `wanted` holds; False when it does not within so many seconds, or the stream has ended."""
        with anyio.move_on_after(seconds):
            while not wanted():
                if self.ended is not None:
                    return False
                await self._changed.wait()
            return True
        return bool(wanted())

    async def read(self, response: httpx2.Response) -> None:
        """Take the bytes of a response until they end."""
        try:
            async for chunk in response.aiter_bytes():
                self.feed(chunk)
        except httpx2.TransportError as wrong:
            self.end(f"the stream broke: {wrong}")
        else:
            self.end(ORDERLY_END)

    def _notify(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _take(self, block: Block) -> None:
        try:
            frame = json.loads(block.data)
            assert isinstance(frame, dict)
        except (ValueError, AssertionError):
            self.broken.setdefault("framing-json", f"an event is no JSON object: {block.data[:100]!r}")
            return
        is_resumed = self.is_resumed and len(self.chats) == 1 and frame.get("type") != "snapshot"
        if is_resumed and len(self.blocks) == 1 and not self.heartbeats_count:
            self.broken.setdefault("heartbeat-first", "a stream that resumes must begin with a heartbeat")
        if "seq" not in frame:
            if block.id is not None:
                self.broken.setdefault("transient-id", f"a transient frame has an id: {block.data[:100]!r}")
        elif not self.chats and not self._is_open_to_all:
            self._take_feed(frame, block)
        elif (chat_id := str(frame.get("chat_id"))) in self.chats or self._is_open_to_all:
            self.chat(chat_id).take(frame, block.id or "")
        else:
            self.broken.setdefault("strange-chat", f"an event of a chat that was not asked for: {block.data[:100]!r}")

    def _take_feed(self, frame: JsonObject, block: Block) -> None:
        """Feeds number their frames from a snapshot on and have no ids (PROTOCOL §1, §13)."""
        seq = frame["seq"]
        is_first = frame.get("type") == "feed_snapshot" or seq == 0
        expected = 0 if is_first else self._feed_seq
        if seq not in (expected, str(expected)):
            self.broken.setdefault("feed-seq", f"a frame of a feed has seq {seq!r} where {expected} must follow")
        if block.id is not None:
            self.broken.setdefault("feed-id", f"a frame of a feed has an id: {block.id!r}")
        self._feed_seq = expected + 1
