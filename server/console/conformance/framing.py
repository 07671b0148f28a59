"""Reads an event stream byte by byte, and notes where its framing differs from PROTOCOL §4.

`FrameParser` of `protocol/sse.py` reads whatever browsers read. This reader is stricter on purpose: a block whose id
stands before its data, or that has an `event:` line, parses well and still breaks clients (an `event:` line silences
`EventSource.onmessage`). It has no sockets; `wire.py` feeds it.
"""

import re
from typing import NamedTuple

__all__ = ["Block", "Framing"]

RETRY_MS = 500
"""PROTOCOL §4: how soon a reader that reconnects by itself comes back after a cut."""

_HEARTBEAT = re.compile(rb": hb [0-9]{1,15}")
_RETRY = re.compile(rb"retry: ([0-9]{1,9})")
_FIELDS = (b"data", b"id", b"event", b"retry")


class Block(NamedTuple):
    """One event: `data` joined over its lines; None for an `id` or `event` that has no line."""

    data: str
    id: str | None = None
    event: str | None = None


class Framing:
    """Feed it a stream's bytes. `broken` maps the name of each broken rule to a sentence about its first case.

    `is_native`: one data line, then at most an id line, and no `event:`. Otherwise the stream belongs to an older
    wire (PROTOCOL §14), which may split text into several data lines and name its events.
    """

    def __init__(self, *, is_native: bool) -> None:
        self.broken: dict[str, str] = {}
        self.heartbeats_count = 0
        self.ends_with_retry = False
        """The last line was a `retry`: a goodbye, if the stream ends here."""
        self._retries: list[int] = []
        self._is_native = is_native
        self._rest = b""
        self._lines: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Block]:
        """Return the blocks that these bytes complete."""
        blocks: list[Block] = []
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if b"\r" in line:
                self._break("framing-line-ends", f"a line has a carriage return: {_shown(line)}")
                line = line.replace(b"\r", b"")
            if line and not line.startswith(b":"):
                self._field(line)
            elif line:
                self._comment(line)
            elif self._lines:
                blocks.append(self._block())
            else:
                self._break("framing-empty-event", "an empty line ends no event, such as one after a heartbeat")
            self.ends_with_retry = line.startswith(b"retry:")
        return blocks

    def _comment(self, line: bytes) -> None:
        if self._lines:
            self._break("framing-comment-inside", f"a comment stands inside an event: {_shown(line)}")
        if _HEARTBEAT.fullmatch(line):
            self.heartbeats_count += 1
            if self._is_native and self._retries != [RETRY_MS] and self.heartbeats_count == 1:
                self._break(
                    "early-retry", f"`retry: {RETRY_MS}` must stand before the first heartbeat: {self._retries}"
                )
        elif line.startswith(b": hb"):
            self._break("framing-heartbeat", f"a heartbeat is `: hb <unix seconds>`, came {_shown(line)}")

    def _field(self, line: bytes) -> None:
        name, colon, _value = line.partition(b": " if self._is_native else b":")
        if name not in _FIELDS or not colon:
            self._break("framing-field", f"a line is none of `data: `, `id: `, `retry: ` and a comment: {_shown(line)}")
        if name == b"retry":
            found = _RETRY.fullmatch(line)
            if found is None:
                self._break("framing-retry", f"`retry` is a whole number of milliseconds, came {_shown(line)}")
            else:
                self._retries.append(int(found[1]))
            return
        if self._is_native:
            self._native_order(name, line)
        self._lines.append(line)

    def _native_order(self, name: bytes, line: bytes) -> None:
        before = [each.partition(b":")[0] for each in self._lines]
        if name == b"event":
            self._break("framing-event-field", f"an event names a type, so `onmessage` stays silent: {_shown(line)}")
        elif name == b"data" and b"data" in before:
            self._break("framing-one-data-line", f"an event has several data lines: {_shown(line)}")
        elif name == b"data" and b"id" in before:
            self._break("framing-data-first", f"an id stands before its data: {_shown(self._lines[-1])}")
        elif name == b"id" and b"id" in before:
            self._break("framing-one-id", f"an event has several ids: {_shown(line)}")

    def _block(self) -> Block:
        lines, self._lines = self._lines, []
        fields: dict[str, list[str]] = {}
        for line in lines:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            try:
                text = value.decode()
            except UnicodeDecodeError:
                self._break("framing-utf-8", f"bytes that are no UTF-8: {_shown(line)}")
                text = value.decode("utf-8", "replace")
            fields.setdefault(name.decode("latin-1"), []).append(text)
        if self._is_native and "data" not in fields:
            self._break("framing-no-data", f"an event has no data: {_shown(lines[0])}")
        last = {name: values[-1] for name, values in fields.items()}
        return Block("\n".join(fields.get("data", [])), last.get("id"), last.get("event"))

    def _break(self, rule: str, sentence: str) -> None:
        self.broken.setdefault(rule, sentence)


def _shown(line: bytes) -> str:
    return repr(line[:80].decode("utf-8", "backslashreplace"))
