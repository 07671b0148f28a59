"""One open event stream of the server under test: its blocks, and a `Stream` for each chat on it.

`Wire.read` reads and checks the bytes of a response. `Wire.until` waits, with a deadline, for something on the stream.
"""

import json
import re
from collections.abc import Callable

import httpx2

from threadcast.console.conformance.framing import Block, Framing
from threadcast.console.conformance.stream import Stream
from threadcast_client.changed import Changed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["ORDERLY_END", "Wire", "broken_headers"]

_STREAM_HEADERS = {
    "content-type": re.compile(r"text/event-stream(; ?charset=utf-8)?", re.IGNORECASE),
    "cache-control": re.compile(r"(.*,)? *no-cache *(,.*)?", re.IGNORECASE),
    "x-accel-buffering": re.compile("no"),
}
"""The required headers of an event stream (PROTOCOL §4). HTTP lets a server add a charset and more directives."""

ORDERLY_END = "the server ended the stream"


def broken_headers(response: httpx2.Response) -> dict[str, str]:
    """Return the rules that the headers of an event stream break, as a mapping from the name of each rule to a
    sentence."""
    broken: dict[str, str] = {}
    for name, wanted in _STREAM_HEADERS.items():
        value = response.headers.get(name)
        if value is None or not wanted.fullmatch(value):
            must = "text/event-stream" if name == "content-type" else "no-cache" if name == "cache-control" else "no"
            broken[f"headers-{name}"] = f"an event stream must have the header {name}: {must}; it has {value!r}"
    return broken


class Wire:
    """One open stream.

    `chat_ids`: the chats that the stream was opened for. `is_native`: the stream has the protocol's own format, not
    that of an older wire. `has_plain_ids`: see `Stream`. `is_open_to_all`: the stream has a name, so chats may be added
    later. `is_resumed`: the stream was opened with an id, so it need not begin with snapshots.
    """

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
        """The reason why the stream has ended; None while the stream is open."""
        self.broken: dict[str, str] = {}
        self.is_native = is_native
        self.is_resumed = is_resumed
        self._is_open_to_all = is_open_to_all
        self._framing = Framing(is_native=is_native)
        self._changed = Changed()
        self._feed_seq = 0
        self.chats = {
            chat_id: Stream(chat_id, has_plain_ids=has_plain_ids, is_resumed=is_resumed) for chat_id in chat_ids
        }

    @classmethod
    def of_chat(cls, chat_id: str, *, is_resumed: bool = False) -> "Wire":
        """Return a stream of one chat without a name."""
        return cls([chat_id], has_plain_ids=True, is_resumed=is_resumed)

    def chat(self, chat_id: str) -> Stream:
        """Return the events of one chat on this stream."""
        if chat_id not in self.chats:
            # The chat was added to the open stream, perhaps with an id to resume from.
            self.chats[chat_id] = Stream(chat_id, has_plain_ids=False, is_resumed=True)
        return self.chats[chat_id]

    @property
    def heartbeats_count(self) -> int:
        return self._framing.heartbeats_count

    @property
    def has_said_goodbye(self) -> bool:
        """Whether the last line is a `retry`, which asks the reader to reconnect."""
        return self._framing.ends_with_retry

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        for block in self._framing.feed(chunk):
            self.blocks.append(block)
            if self.is_native:
                self._take(block)
        self.broken.update(self._framing.broken | self.broken)  # a rule keeps the sentence about its first violation
        self._changed.tell()

    def end(self, why: str) -> None:
        self.ended = self.ended or why
        self._changed.tell()

    async def until(self, wanted: Callable[[], object], seconds: float) -> bool:
        """Wait until `wanted()` is true. Returns False after `seconds`, or if the stream ends before."""
        await self._changed.until(lambda: wanted() or self.ended is not None, seconds)
        return bool(wanted())

    async def read(self, response: httpx2.Response) -> None:
        """Read the bytes of a response until the stream ends."""
        try:
            async for chunk in response.aiter_bytes():
                self.feed(chunk)
        except httpx2.TransportError as wrong:
            self.end(f"the stream broke: {wrong}")
        else:
            self.end(ORDERLY_END)

    def _take(self, block: Block) -> None:
        try:
            frame = json.loads(block.data)
            assert isinstance(frame, dict)
        except (ValueError, AssertionError):
            self.broken.setdefault("framing-json", f"an event is not a JSON object: {block.data[:100]!r}")
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
            self.broken.setdefault(
                "strange-chat", f"an event is of a chat that was not requested: {block.data[:100]!r}"
            )

    def _take_feed(self, frame: JsonObject, block: Block) -> None:
        """Check a frame of a feed. The frames of a feed are numbered from the last snapshot on and have no ids
        (PROTOCOL §1, §13)."""
        seq = frame["seq"]
        is_first = frame.get("type") == "feed_snapshot" or seq == 0
        expected = 0 if is_first else self._feed_seq
        if seq not in (expected, str(expected)):
            self.broken.setdefault("feed-seq", f"a frame of a feed has seq {seq!r} where {expected} must follow")
        if block.id is not None:
            self.broken.setdefault("feed-id", f"a frame of a feed has an id: {block.id!r}")
        self._feed_seq = expected + 1
