"""Splits the bytes of a server-sent event stream into the data of its events.

An incremental reader for model streams (WHATWG HTML §9.2.6): CR, LF and CRLF end a line, `data` lines of one event
are joined by LF, comments and other fields are skipped, a byte order mark at the start is dropped. The reader works on
bytes, so a piece may end inside a UTF-8 character. The adapters call it. The result never depends on how the bytes are
cut. An event that is unfinished at the end of the stream is discarded.
"""

__all__ = ["EVENT_MAX_BYTES", "EventTooLarge", "SseSplitter"]

EVENT_MAX_BYTES = 16 * 1024 * 1024
"""Maximum bytes of one unfinished event. Real chunks are below 1 kB, a whole tool call or image block a few MB; a
server that never ends a line must not fill our memory."""

_BOM = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """An event exceeded the limit."""


class SseSplitter:
    """Splits a stream. Pass each read to `feed`, which returns the data of the completed events."""

    def __init__(self, max_bytes: int = EVENT_MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._line: list[bytes] = []
        """The pieces of the unfinished line."""
        self._line_bytes = 0
        self._data: list[bytes] = []
        """The data lines of the unfinished event."""
        self._data_bytes = 0
        self._after_cr = False
        """Whether the last byte was CR: an LF that follows then belongs to the same line end. Waiting for that LF would
        delay a whole event."""
        self._is_first_line = True

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that end within `piece`.

        Raises:
            EventTooLarge: the unfinished event exceeds `max_bytes`.
        """
        if not piece:
            return []
        if not self._is_first_line and (plain := self._plain(piece)):
            return plain
        if self._after_cr and piece[:1] == b"\n":
            piece = piece[1:]
        self._after_cr = piece[-1:] == b"\r"
        events: list[bytes] = []
        lines = piece.splitlines()
        rest = lines.pop() if lines and piece[-1:] not in (b"\n", b"\r") else b""
        for line in lines:
            self._end_line(line, events)
        if rest:
            self._line.append(rest)
            self._line_bytes += len(rest)
            self._check_size()
        return events

    def _plain(self, piece: bytes) -> list[bytes]:
        """Return the events of a piece that contains only whole events of one line each; [] for other pieces. Nearly
        all servers send such pieces, and this method costs a third of a scan by line."""
        if self._line or self._data or piece[:6] != b"data: " or piece[-2:] != b"\n\n" or len(piece) > self._max_bytes:
            return []
        events = piece[6:-2].split(b"\n\ndata: ")
        if piece.count(b"\n") != 2 * len(events) or b"\r" in piece:
            return []
        self._after_cr = False
        return events

    def _end_line(self, line: bytes, events: list[bytes]) -> None:
        if self._line:
            line = b"".join([*self._line, line])
            self._line.clear()
            self._line_bytes = 0
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data.clear()
                self._data_bytes = 0
        elif line[:5] == b"data:" or line == b"data":
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            self._data_bytes += len(line)
            self._check_size()

    def _check_size(self) -> None:
        if self._line_bytes + self._data_bytes > self._max_bytes:
            raise EventTooLarge(f"an event of the stream is larger than {self._max_bytes} bytes")
