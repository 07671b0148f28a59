"""Encodes and parses Server-Sent Events, without sockets.

The encoder writes the native wire (PROTOCOL §4) and, for projections, any event stream. The JSON of an event is not
encoded again for each reader: `chat_id` and `seq` are inserted before its `type`. The parser follows WHATWG HTML,
"Server-sent events"; it is incremental, and its memory is bounded. No text in an event can forge a field or end a
block.
"""

import re
from functools import lru_cache
from typing import TypeAlias

import msgspec

from threadcast_protocol.wire.errors import Internal, TooLarge
from threadcast_protocol.wire.ids import Position, check_id

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
"""The maximum bytes of an unfinished block in a parser. A snapshot contains a whole chat, and the images of several 16
MiB commands if a client requests them inline; a Threadcast server sends nothing larger."""

HEADS_MAX = 4_096
"""The number of chats whose frame heads are cached; a head has at most a third of a kilobyte. Without the cache,
checking the chat's id took a twentieth of the time that a process spends on an event with one reader."""


class Frame:
    """An event of a chat, encoded once for all readers.

    Blocks for different readers differ only in two numbers, `seq` and the base. The head is the part before `seq`, the
    tail the part between `seq` and the base; joining them takes about 0.25 µs. Readers that joined at the same moment
    have the same base and get the event one after the other, so the last block is kept and reused.
    """

    __slots__ = ("_base", "_bytes", "_head", "_line", "_line_base", "_line_end", "_tail", "epoch", "position")

    def __init__(self, chat_id: str, event_json: bytes, epoch: int, position: int) -> None:
        """Encode an event. `event_json` is one line `{"type":…}` from `codec.encode`.

        Raises:
            BadRequest: `chat_id` is not a valid id.
            Internal: `event_json` is not one line that begins with `{"type":`.
        """
        self.epoch = epoch
        self.position = position
        self._head = _head_of(chat_id)
        self._tail = b'",%b\nid: %d-%d-' % (_inside(event_json), epoch, position)
        self._line_end = len(event_json) + 1  # the `",` before the event takes the place of the brace
        self._base = self._line_base = -1
        self._bytes = self._line = b""

    def for_base(self, base: int) -> bytes:
        """Return the block for readers whose snapshot was taken at the position `base`, which is less than this frame's
        position."""
        if base != self._base:
            self._bytes = b"%b%d%b%d\n\n" % (self._head, self.position - base, self._tail, base)
            self._base = base
        return self._bytes

    def line_for_base(self, base: int) -> bytes:
        """Return only the data line, without its line end. Streams of several chats write the id of the whole stream
        after this line."""
        if base != self._line_base:
            self._line = b"%b%d%b" % (self._head, self.position - base, self._tail[: self._line_end])
            self._line_base = base
        return self._line


@lru_cache(HEADS_MAX)
def _head_of(chat_id: str) -> bytes:
    return b'data: {"chat_id":"%b","seq":"' % check_id(chat_id, "chat_id").encode()


def snapshot_frame(chat_id: str, snapshot_json: bytes, epoch: int, position: int) -> bytes:
    """Return the block of a snapshot taken at `position`, with seq 0. The position is also the base of the events that
    follow. Raises the same errors as `Frame`."""
    stream_id = Position(epoch, position, position)
    name = check_id(chat_id, "chat_id").encode()
    _check(snapshot_json)
    inside = memoryview(snapshot_json)[1:]  # not copied once more, since a snapshot may have megabytes
    return b"".join((b'data: {"chat_id":"%b","seq":"0",' % name, inside, b"\nid: %b\n\n" % str(stream_id).encode()))


def transient_frame(chat_id: str, event_json: bytes) -> bytes:
    """Return the block of an event that is not in the log (presence, typing), without seq and id. Raises the same
    errors as `Frame`."""
    return b'data: {"chat_id":"%b",%b\n\n' % (check_id(chat_id, "chat_id").encode(), _inside(event_json))


def _inside(event_json: bytes) -> bytes:
    """Return the object without its opening brace."""
    _check(event_json)
    return event_json[1:]


def _check(event_json: bytes) -> None:
    """Raise Internal for anything but one line. JSON escapes line ends in strings, so only an attempt to forge a field
    contains a raw line end."""
    if not event_json.startswith(b'{"type":') or b"\n" in event_json or b"\r" in event_json:
        raise Internal("an event must be one line of JSON that begins with its type")


def heartbeat(unix_seconds: int) -> bytes:
    """Return a comment line, which may be written between two blocks. Browsers skip comments; other clients learn from
    comments that the connection is alive.

    No empty line follows the comment, because an empty line dispatches an event. WHATWG HTML drops an event without
    data ("If the data buffer is an empty string"), but httpx-sse, sseclient-py and fetch-event-source do not.
    """
    return b": hb %d\n" % unix_seconds


def retry(milliseconds: int) -> bytes:
    """Return a line that sets how long the client waits before it reconnects. Like a heartbeat, the line does not end
    an event."""
    return b"retry: %d\n" % milliseconds


_LINE_END = re.compile(r"\r\n|\r|\n")
_FORBIDDEN = re.compile("[\r\n\0]")


def encode_event(event: str | None, data: str, id: str | None = None) -> bytes:
    """Encode any event as a block. Each line of `data` becomes a data line of its own; readers get "\\n" in place of
    each line end.

    A lone surrogate, which UTF-8 cannot encode, becomes "?".

    Raises:
        Internal: `event` or `id` contains a line end or NUL, which would forge a field.
    """
    for value in (event, id):
        if value is not None and _FORBIDDEN.search(value):
            raise Internal("the event or the id of a frame has a line end or NUL")
    lines = [f"data: {line}" for line in _LINE_END.split(data)]
    if event is not None:
        lines.insert(0, f"event: {event}")
    if id is not None:
        lines.append(f"id: {id}")
    return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")


class EventFrame(msgspec.Struct, frozen=True):
    """An event. `last_event_id` is the last id on the stream, which may be the id of an earlier event."""

    data: str
    event: str = "message"
    last_event_id: str = ""


class CommentFrame(msgspec.Struct, frozen=True):
    """A comment line, such as a heartbeat."""

    text: str


class RetryFrame(msgspec.Struct, frozen=True):
    """A request of the server to wait for this time before reconnecting."""

    milliseconds: int


ParsedFrame: TypeAlias = EventFrame | CommentFrame | RetryFrame

_RAW_LINE_END = re.compile(rb"\r\n?|\n")
_BOM = b"\xef\xbb\xbf"
_PLAIN_BLOCK = re.compile(rb"data: ([^\r\n]*+)\nid: ([^\r\n\0]*+)\n\n")
_RETRY_MAX_DIGITS = 9
"""The maximum digits of a wait in milliseconds, enough for eleven days. A longer number must be an error, and thousands
of digits would take long to parse."""


class FrameParser:
    """Parses a byte stream into frames. The bytes may be cut anywhere. Invalid UTF-8 becomes U+FFFD; an unfinished
    block at the end is dropped.

    The parser keeps at most `max_bytes` of an unfinished block. If a block exceeds this limit, `feed` raises TooLarge,
    and so does every later call. If the same bytes finished other frames, `feed` first returns these frames and raises
    on the next call.
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
        """Return the frames that these bytes complete.

        Raises:
            TooLarge: an unfinished block exceeds the limit; connect again.
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
        """Read the complete blocks at the start of `chunk` that have the form in which Threadcast servers write them,
        and return the index after them. Reading whole blocks is three times as fast as reading line by line. Returns 0
        if a block has begun in an earlier chunk."""
        if self._line or self._data or self._event:
            return 0
        end = 0
        while (block := _PLAIN_BLOCK.match(chunk, end)) is not None and block.end() - end <= self._max_bytes:
            data, stream_id = block.groups()
            self._last_event_id = stream_id.decode("utf-8", "replace")
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
