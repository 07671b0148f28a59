"""Reads the bytes of an event stream and records each difference of its framing from PROTOCOL §4.

`FrameParser` of `framing/sse.py` reads everything that browsers read. This reader is stricter: a block with its id
before its data, or with an `event:` line, can be parsed but breaks clients, because an `event:` line silences
`EventSource.onmessage`. The reader does no I/O; `wire.py` passes it the bytes.
"""

import re
from typing import NamedTuple

__all__ = ["Block", "Framing"]

RETRY_MS = 500
"""The time after which a reader must reconnect when its connection is lost (PROTOCOL §4)."""

_HEARTBEAT = re.compile(rb": hb [0-9]{1,15}")
_RETRY = re.compile(rb"retry: ([0-9]{1,9})")
_FIELDS = (b"data", b"id", b"event", b"retry")


class Block(NamedTuple):
    """One event. `data` is joined from its lines; `id` and `event` are None if the block has no such line."""

    data: str
    id: str | None = None
    event: str | None = None


class Framing:
    """Splits the bytes of one stream into blocks and checks their form.

    `broken` maps the name of each broken rule to a sentence about its first violation. `is_native`: each event must be
    one data line and at most one id line, without `event:`. Otherwise the stream belongs to an older wire (PROTOCOL
    §14), which may split a text into several data lines and name its events.
    """

    def __init__(self, *, is_native: bool) -> None:
        self.broken: dict[str, str] = {}
        self.heartbeats_count = 0
        self.ends_with_retry = False
        """Whether the last line is a `retry`. At the end of a stream, this line asks the reader to reconnect."""
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
                self._break("framing-empty-event", "an empty line ends no event; none may follow a heartbeat")
            self.ends_with_retry = line.startswith(b"retry:")
        return blocks

    def _comment(self, line: bytes) -> None:
        if self._lines:
            self._break("framing-comment-inside", f"a comment is inside an event: {_shown(line)}")
        if _HEARTBEAT.fullmatch(line):
            self.heartbeats_count += 1
            if self._is_native and self._retries != [RETRY_MS] and self.heartbeats_count == 1:
                came = f"came {self._retries}"
                self._break("early-retry", f"`retry: {RETRY_MS}` must come before the first heartbeat, {came}")
        elif line.startswith(b": hb"):
            self._break("framing-heartbeat", f"a heartbeat must be `: hb <unix seconds>`, received {_shown(line)}")

    def _field(self, line: bytes) -> None:
        name, colon, _value = line.partition(b": " if self._is_native else b":")
        if name not in _FIELDS or not colon:
            self._break(
                "framing-field", f"a line must be `data: `, `id: `, `retry: ` or a comment, received {_shown(line)}"
            )
        if name == b"retry":
            found = _RETRY.fullmatch(line)
            if found is None:
                self._break("framing-retry", f"`retry` must be a whole number of milliseconds, received {_shown(line)}")
            else:
                self._retries.append(int(found[1]))
            return
        if self._is_native:
            self._native_order(name, line)
        self._lines.append(line)

    def _native_order(self, name: bytes, line: bytes) -> None:
        before = [each.partition(b":")[0] for each in self._lines]
        if name == b"event":
            self._break("framing-event-field", f"an event has a type, so `onmessage` stays silent: {_shown(line)}")
        elif name == b"data" and b"data" in before:
            self._break("framing-one-data-line", f"an event has several data lines: {_shown(line)}")
        elif name == b"data" and b"id" in before:
            self._break("framing-data-first", f"an id comes before its data: {_shown(self._lines[-1])}")
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
                self._break("framing-utf-8", f"a line is not UTF-8: {_shown(line)}")
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
