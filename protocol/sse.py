"""Frames to bytes and bytes to frames: Server-Sent Events both ways, without sockets.

The way out makes the native wire (PROTOCOL §4) and, for projections, any event stream. An event's JSON is never encoded
again: `chat_id` and `seq` are spliced in before its `type`. The way in is the parser of WHATWG HTML, "Server-sent
events", incremental and bounded. Relays, projections and clients call this file; it knows neither the events inside
nor who reads them. The one rule: no text, whoever wrote it, can forge a field or end a block.
"""

import re
from functools import lru_cache
from typing import TypeAlias

import msgspec

from protocol.errors import Internal, TooLarge
from protocol.ids import Position, check_id

__all__ = [
    "FRAME_MAX_BYTES",
    "CommentFrame",
    "EventFrame",
    "Frame",
    "FrameParser",
    "ParsedFrame",
    "RetryFrame",
    "encode_event",
    "heartbeat",
    "retry",
    "snapshot_frame",
    "transient_frame",
]

FRAME_MAX_BYTES = 64 * 1024 * 1024
"""What a parser holds of one unfinished block before it gives up. A snapshot carries a whole chat, with the images
of several 16 MiB commands when a client asks for them inline; more than this is no server of ours."""

HEADS_MAX = 4_096
"""Of chats whose beginning of a frame is kept: to check the id for each event was a twentieth of what an event with one
reader costs its process. A third of a kilobyte each at most; a process with more chats than that checks again."""


class Frame:
    """One event of a chat, encoded once and shared by all who watch.

    Everything up to `seq` is the head, everything from there to the base is the tail; only the two numbers differ
    from reader to reader (about 0.25 µs to splice). Readers that joined at the same moment have the same base and
    stand side by side, so the last result is kept: they share its bytes.
    """

    __slots__ = ("_base", "_bytes", "_head", "_line", "_line_base", "_line_end", "_tail", "epoch", "position")

    def __init__(self, chat_id: str, event_json: bytes, epoch: int, position: int) -> None:
        """`event_json` is one line `{"type":…}` as `codec.encode` makes it.

        Raises:
            BadRequest: `chat_id` is no id.
            Internal: `event_json` is no such line.
        """
        self.epoch = epoch
        self.position = position
        self._head = _head_of(chat_id)
        self._tail = b'",%b\nid: %d-%d-' % (_inside(event_json), epoch, position)
        self._line_end = len(event_json) + 1  # ", and the event without its opening brace
        self._base = self._line_base = -1
        self._bytes = self._line = b""

    def for_base(self, base: int) -> bytes:
        """The block for a reader whose snapshot stood at position `base`, which is less than this frame's own."""
        if base != self._base:
            self._bytes = b"%b%d%b%d\n\n" % (self._head, self.position - base, self._tail, base)
            self._base = base
        return self._bytes

    def line_for_base(self, base: int) -> bytes:
        """Only the data line, without its end: a stream of many chats writes an id of its own after it."""
        if base != self._line_base:
            self._line = b"%b%d%b" % (self._head, self.position - base, self._tail[: self._line_end])
            self._line_base = base
        return self._line


@lru_cache(HEADS_MAX)
def _head_of(chat_id: str) -> bytes:
    return b'data: {"chat_id":"%b","seq":"' % check_id(chat_id, "chat_id").encode()


def snapshot_frame(chat_id: str, snapshot_json: bytes, epoch: int, position: int) -> bytes:
    """The block of a snapshot taken at `position`: seq 0, and a base of its own. Raises as `Frame`."""
    place = Position(epoch, position, position)
    name = check_id(chat_id, "chat_id").encode()
    return b'data: {"chat_id":"%b","seq":"0",%b\nid: %b\n\n' % (name, _inside(snapshot_json), str(place).encode())


def transient_frame(chat_id: str, event_json: bytes) -> bytes:
    """The block of an event that stands in no log (presence, typing): no seq, no id. Raises as `Frame`."""
    return b'data: {"chat_id":"%b",%b\n\n' % (check_id(chat_id, "chat_id").encode(), _inside(event_json))


def _inside(event_json: bytes) -> bytes:
    """The object without its opening brace. JSON escapes line ends inside strings, so a raw one is a forgery."""
    if not event_json.startswith(b'{"type":') or b"\n" in event_json or b"\r" in event_json:
        raise Internal("an event must be one line of JSON that begins with its type")
    return event_json[1:]


def heartbeat(unix_seconds: int) -> bytes:
    """Returns a comment line: browsers skip it, other clients see that the connection is alive. It may stand between
    two blocks.

    No empty line follows. An empty line dispatches an event, and httpx-sse, sseclient-py and fetch-event-source hand on
    an event without data, which WHATWG HTML drops ("If the data buffer is an empty string").
    """
    return b": hb %d\n" % unix_seconds


def retry(milliseconds: int) -> bytes:
    """Returns a line that tells the client how long to wait before it connects again. Like `heartbeat`, it ends no
    event."""
    return b"retry: %d\n" % milliseconds


_LINE_END = re.compile(r"\r\n|\r|\n")
_FORBIDDEN = re.compile("[\r\n\0]")


def encode_event(event: str | None, data: str, id: str | None = None) -> bytes:
    """Any event as a block. Line ends inside `data` start further data lines; readers get each of them as "\\n".

    A lone surrogate, which has no bytes in UTF-8, becomes "?".

    Raises:
        Internal: a line end or NUL in `event` or `id`, which would forge a field.
    """
    for value in (event, id):
        if value is not None and _FORBIDDEN.search(value):
            raise Internal("a line end or NUL in the event or id of a frame")
    lines = [f"data: {line}" for line in _LINE_END.split(data)]
    if event is not None:
        lines.insert(0, f"event: {event}")
    if id is not None:
        lines.append(f"id: {id}")
    return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")


class EventFrame(msgspec.Struct, frozen=True):
    """A dispatched event. `last_event_id` is the last id seen on the stream, which may be an older event's."""

    data: str
    event: str = "message"
    last_event_id: str = ""


class CommentFrame(msgspec.Struct, frozen=True):
    """A comment line; heartbeats are comments."""

    text: str


class RetryFrame(msgspec.Struct, frozen=True):
    milliseconds: int


ParsedFrame: TypeAlias = EventFrame | CommentFrame | RetryFrame

_RAW_LINE_END = re.compile(rb"\r\n?|\n")
_BOM = b"\xef\xbb\xbf"
_PLAIN_BLOCK = re.compile(rb"data: ([^\r\n]*+)\nid: ([^\r\n\0]*+)\n\n")
_RETRY_MAX_DIGITS = 9
"""A wait of eleven days; a longer number is not meant (and thousands of digits are costly to read)."""


class FrameParser:
    """Bytes in, frames out, wherever the bytes are cut. Invalid UTF-8 becomes U+FFFD; an unfinished block is nothing.

    At most `max_bytes` of an unfinished block are held. When one grows beyond, `feed` raises TooLarge, now or, when
    the same bytes finished other frames, the next time; from then on it always does.
    """

    def __init__(self, max_bytes: int = FRAME_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._after_cr = False
        self._at_start = True
        self._data: list[str] = []
        self._data_bytes = 0
        self._event = ""
        self._last_event_id = ""
        self._is_broken = False

    def feed(self, chunk: bytes) -> list[ParsedFrame]:
        """The frames that these bytes finish.

        Raises:
            TooLarge: an unfinished block exceeds the bound; connect again.
        """
        frames: list[ParsedFrame] = []
        if not self._is_broken and chunk:
            start = self._read_plain(chunk, frames)
            if start < len(chunk):
                start += self._after_cr and chunk.startswith(b"\n")
                self._after_cr = chunk.endswith(b"\r")
                self._read(chunk, start, frames)
        if self._is_broken and not frames:
            raise TooLarge(f"a frame of the stream is larger than {self._max_bytes} bytes")
        return frames

    def _read_plain(self, chunk: bytes, frames: list[ParsedFrame]) -> int:
        """Blocks as our own servers write them, whole in one piece: three times as fast as line by line. Returns where
        they end; nothing is read when something came before that may belong to them."""
        if self._line or self._data or self._event:
            return 0
        end = 0
        while (block := _PLAIN_BLOCK.match(chunk, end)) is not None and block.end() - end <= self._max_bytes:
            data, place = block.groups()
            self._last_event_id = place.decode("utf-8", "replace")
            frames.append(EventFrame(data.decode("utf-8", "replace"), "message", self._last_event_id))
            end = block.end()
        if end:
            self._at_start = self._after_cr = False
        return end

    def _read(self, chunk: bytes, start: int, frames: list[ParsedFrame]) -> None:
        for end in _RAW_LINE_END.finditer(chunk, start):
            self._line += chunk[start : end.start()]
            start = end.end()
            if not self._fits():
                return
            line = bytes(self._line)
            self._line.clear()
            if self._at_start:
                self._at_start = False
                line = line.removeprefix(_BOM)
            self._take(line, frames)
        self._line += chunk[start:]
        self._fits()

    def _fits(self) -> bool:
        self._is_broken = self._data_bytes + len(self._line) > self._max_bytes
        return not self._is_broken

    def _take(self, line: bytes, frames: list[ParsedFrame]) -> None:
        if not line:
            if self._data:
                frames.append(EventFrame("\n".join(self._data), self._event or "message", self._last_event_id))
            self._data = []
            self._data_bytes = 0
            self._event = ""
            return
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
            self._data_bytes += len(line)
        elif field == "event":
            self._event = value
        elif field == "id" and "\0" not in value:
            self._last_event_id = value
        elif field == "":
            frames.append(CommentFrame(value))
        elif field == "retry" and re.fullmatch(rf"[0-9]{{1,{_RETRY_MAX_DIGITS}}}", value):
            frames.append(RetryFrame(int(value)))
