"""Packs the JSON of a chat tightly, by removing ids and numbers from the text before the text is compressed. All
functions are pure.

The events and traces of a chat repeat the same few shapes, in which only texts, ids, times and counts differ. A general
compressor spends half of its output on ids, which are random hexadecimal digits, and on references to ids of earlier
lines. So this module replaces each token (an id or a number) in the text by one byte; the result is the *skeleton*. The
byte means either that the next token of the list of new tokens belongs here, or that a certain recent token is repeated
here. The skeletons of two exchanges of a chat are then nearly the same. 50 short exchanges of a chat (143 kB of events)
take 5.6 kB. Their JSON, compressed at the same level, takes 9.9 kB.

Text can be added to a packed text without unpacking it: adding an exchange to these 50 takes 0.2 ms, and `encode` takes
0.4 ms.
"""

import re

import msgspec

from threadcast.store.compression import decompressed, zstd

__all__ = ["Packed"]

LEVEL = 9
"""The level of Zstandard. At this level, 50 exchanges take 5.3 kB and 0.28 ms; at level 6 they take 5.5 kB and 0.21 ms,
at level 3 6.9 kB and 0.06 ms."""

_ID_BYTES = {1: 10, 2: 16, 3: 16}
"""The number of bytes of an id for each mark in the skeleton: an id has 20 or 32 hexadecimal digits, or is a UUID (RFC
9562 §4)."""
_NUMBER = 4
_MARKS = bytes([*range(1, 10), *range(11, 32)])
"""Control characters that are not line ends; JSON contains them only as escapes (RFC 8259 §7). The bytes 1 to 4 mark a
new token. Each other byte repeats a token, and gives the number of new tokens to count back to it."""
_BACK = _MARKS[4:]

_token = re.compile(
    rb"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}|[0-9a-f]{20}|[0-9]{2,18})"
)
_mark = re.compile(rb"([\x01-\x09\x0b-\x1f])")
_new_mark = re.compile(rb"[\x01-\x04]")

_TIME_DIGITS = 13
"""A number with this many digits is taken for a time in ms (until the year 2286), and is stored as the difference from
the previous time."""

TAIL_BYTES = 8_000
"""The bytes at the end of the skeleton that are searched first for the newest tokens, because a search of the whole
skeleton takes 0.3 ms."""

PLAIN_ABOVE_BYTES = 128_000
"""A larger text is packed without replacing its tokens, because the search for tokens would block the event loop for
more than 4 ms."""


class Packed(msgspec.Struct, frozen=True):
    """A packed text. `size_bytes` is the size of the unpacked text."""

    size_bytes: int = 0
    skeleton: bytes = b""
    numbers: bytes = b""
    """The numbers, each followed by a space; the difference between two times begins with a sign."""
    ids: bytes = b""
    last_ms: int = 0
    """The last time in the text; 0 for none."""

    def plus(self, text: bytes) -> "Packed":
        """Return the packed form of this text followed by `text`. Raises ValueError when `text` has control characters
        other than line ends; JSON never contains such characters."""
        if len(text.translate(None, _MARKS)) != len(text):
            raise ValueError("the text contains control characters")
        if len(text) > PLAIN_ABOVE_BYTES:
            return Packed(self.size_bytes + len(text), self.skeleton + text, self.numbers, self.ids, self.last_ms)
        recent, last_ms = self._newest(), self.last_ms
        index = {token: number for number, token in enumerate(recent)}
        count = len(recent)
        parts = _token.split(text)
        numbers: list[bytes] = []
        ids: list[bytes] = []
        for at in range(1, len(parts), 2):
            token = parts[at]
            known = index.get(token)
            if known is not None and count - known <= len(_BACK):
                parts[at] = _BACK[count - known - 1 : count - known]
                continue
            index[token] = count
            count += 1
            if len(token) >= 20:
                mark = 3 if b"-" in token else 2 if len(token) == 32 else 1
                ids.append(bytes.fromhex(token.replace(b"-", b"").decode()))
            else:
                mark = _NUMBER
                if len(token) == _TIME_DIGITS and token[:1] != b"0":
                    numbers.append(b"%+d " % (int(token) - last_ms))
                    last_ms = int(token)
                else:
                    numbers.append(token + b" ")
            parts[at] = _MARKS[mark - 1 : mark]
        return Packed(
            self.size_bytes + len(text),
            self.skeleton + b"".join(parts),
            self.numbers + b"".join(numbers),
            self.ids + b"".join(ids),
            last_ms,
        )

    def text(self) -> bytes:
        """Return the text. Raises ValueError when the parts do not fit together."""
        tokens: list[bytes] = []
        parts = _mark.split(self.skeleton)
        numbers = iter(self.numbers.split(b" "))
        offset = last_ms = 0
        for at in range(1, len(parts), 2):
            mark = parts[at][0]
            if mark > _NUMBER:
                back = _BACK.index(mark) + 1
                if back > len(tokens):
                    raise ValueError("a packed text refers to a token before its first")
                parts[at] = tokens[-back]
                continue
            if mark == _NUMBER:
                token = next(numbers, b"")
                if token[:1] in (b"+", b"-"):
                    last_ms += int(token)
                    token = b"%d" % last_ms
            else:
                raw = self.ids[offset : offset + _ID_BYTES[mark]]
                offset += _ID_BYTES[mark]
                token = _written(mark, raw)
            tokens.append(token)
            parts[at] = token
        text = b"".join(parts)
        if len(text) != self.size_bytes or offset != len(self.ids) or last_ms != self.last_ms:
            raise ValueError("a packed text is cut")
        return text

    def encode(self) -> bytes:
        """Return the stored form. It begins with a line that has the size of the text, the sizes of two frames, and the
        last time. The two frames are the compressed skeleton and the compressed numbers; one common frame would take 4
        % more. The ids follow uncompressed, because they are random and cannot be compressed."""
        skeleton, numbers = (zstd.compress(column, LEVEL) for column in (self.skeleton, self.numbers))
        line = b"%d %d %d %d\n" % (self.size_bytes, len(skeleton), len(numbers), self.last_ms)
        return line + skeleton + numbers + self.ids

    @classmethod
    def decode(cls, stored: bytes, max_bytes: int | None = None) -> "Packed":
        """Return the packed text of a stored form. Raises ValueError when the bytes are not a packed text, or the text
        has more than `max_bytes`."""
        size, skeleton_bytes, numbers_bytes, last_ms, rest = _split(stored)
        if max_bytes is not None and size > max_bytes:
            raise ValueError(f"the packed text has {size} bytes, of at most {max_bytes}")
        frames_bytes = skeleton_bytes + numbers_bytes
        return cls(
            size,
            decompressed(rest[:skeleton_bytes], max_bytes),
            decompressed(rest[skeleton_bytes:frames_bytes], max_bytes),
            rest[frames_bytes:],
            last_ms,
        )

    @staticmethod
    def size_of(stored: bytes) -> int:
        """Return the size of the text. Raises ValueError when the bytes do not begin like a packed text."""
        return _split(stored)[0]

    def _newest(self) -> list[bytes]:
        """Return the tokens to which later bytes of the skeleton may refer, oldest first."""
        count = len(_BACK)
        marks = _new_mark.findall(self.skeleton[-TAIL_BYTES:])
        if len(marks) < count:
            marks = _new_mark.findall(self.skeleton)
        numbers = self.numbers.rsplit(b" ", count + 1)[:-1]
        moment = self.last_ms
        offset = len(self.ids)
        newest: list[bytes] = []
        for each in reversed(marks[-count:]):
            mark = each[0]
            if mark == _NUMBER:
                number = numbers.pop()
                if number[:1] in (b"+", b"-"):
                    newest.append(b"%d" % moment)
                    moment -= int(number)
                else:
                    newest.append(number)
            else:
                newest.append(_written(mark, self.ids[offset - _ID_BYTES[mark] : offset]))
                offset -= _ID_BYTES[mark]
        return newest[::-1]


def _written(mark: int, raw: bytes) -> bytes:
    digits = raw.hex().encode()
    if mark != 3:
        return digits
    return b"-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _split(stored: bytes) -> tuple[int, int, int, int, bytes]:
    line, newline, rest = stored.partition(b"\n")
    if not newline or len(line) > 80:
        raise ValueError("the bytes are not a packed text")
    size, skeleton_bytes, numbers_bytes, last_ms = map(int, line.split(b" "))
    return size, skeleton_bytes, numbers_bytes, last_ms, rest
