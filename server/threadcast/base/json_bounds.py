"""Bounds the number of values in a JSON body, or in a line of a body, before the JSON is decoded.

A body of 16 MiB may be a picture, which is decoded in milliseconds, or millions of empty lists, which take seconds.
`JsonBounds` counts values while the body arrives, so that a body with too many values is refused before it is decoded.
"""

from collections.abc import Callable, Iterator

from threadcast_protocol.wire.errors import TooLarge
from threadcast_protocol.wire.json_scan import SLICE_BYTES, OutsideStrings

__all__ = ["JsonBounds"]

_BUT_SEPARATORS = bytes(set(range(256)) - set(b",[{"))


class JsonBounds:
    """Counts the values of one text: a body, or one line of a body. The class counts commas and opening brackets,
    because each value except the first follows a comma or a bracket. The keys of an object are not counted."""

    def __init__(self, values_max: int, text: str = "the body", path: str = "") -> None:
        """`text` and `path` name the text in the error."""
        self._values_max = values_max
        self._text, self._path = text, path
        self._count = 0
        """The number of values in the bytes that `check` has read."""
        self._count_max = 0
        """The number of values in all bytes, if no comma and no bracket of the unread bytes is inside a string."""
        self._read_bytes = 0
        self._outside = OutsideStrings()

    def is_within(self, chunk: bytes) -> bool:
        """Add a chunk as it arrives. Returns False if the body may have too many values. `check` must then decide,
        because `is_within` also counts commas and brackets inside strings. Takes microseconds."""
        self._count_max += chunk.count(b",") + chunk.count(b"[") + chunk.count(b"{")
        return self._count_max <= self._values_max

    def check(self, body: bytearray) -> Iterator[None]:
        """Count the values of the body so far, a slice at each step. Repeated calls read each byte only once.

        Raises:
            TooLarge: there are more values than allowed.
        """
        return self.check_slices(lambda start, length: bytes(body[start : start + length]), len(body))

    def check_slices(self, read: Callable[[int, int], bytes], size_bytes: int) -> Iterator[None]:
        """Count like `check`, for a text that is not in memory. `read(offset, length)` returns bytes of the text, and
        `size_bytes` is the size of the text so far."""
        while self._read_bytes < size_bytes:
            piece = read(self._read_bytes, min(SLICE_BYTES, size_bytes - self._read_bytes))
            self._read_bytes += len(piece)
            self._count += len(self._outside.next(piece).translate(None, _BUT_SEPARATORS))
            if self._count > self._values_max:
                raise TooLarge(
                    f"{self._text} has more than {self._values_max:,} values (limits.body_max_values); send fewer at "
                    "once, or large data as a file",
                    path=self._path,
                )
            yield
        self._count_max = self._count
