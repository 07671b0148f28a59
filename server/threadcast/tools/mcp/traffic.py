"""Bounds what one MCP server may send: the size of a message and its number of values, the messages per second, and the
tools.

Everything that an MCP server sends is untrusted. A message above the maximum size ends the connection, since the rest
of the message would have to be read as well. A server that sends too much is read more slowly, so that it waits at its
pipe or socket and takes little of the event loop's time.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import structlog

from threadcast.base.json_bounds import JsonBounds
from threadcast.settings.mcp import Mcp
from threadcast_protocol.wire.errors import TooLarge
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["ServerBroke", "Throttle", "Traffic", "lines"]

_log = structlog.get_logger()

BYTES_PER_SECOND = 8_388_608
"""Bytes that one server may send per second on average. Decoding and checking them takes a tenth of a processor."""

VALUES_PER_SECOND = 100_000
"""JSON values that one server may send per second on average. Decoding and checking them takes a sixth of a processor
(measured: 50,000 in 70 ms)."""

BURST_SECONDS = 2.0
"""Seconds by which a server that was silent may be ahead of its pace, so that ordinary answers never wait."""

REQUESTS_OPEN_MAX = 64
"""Maximum requests of the server whose answers the server has not read. Each request holds a task."""

NAME_MAX_CHARACTERS = 256
"""Maximum characters of a tool's name on its server. The protocol recommends at most 128."""

DESCRIPTION_MAX_CHARACTERS = 8_192
"""Maximum characters of a tool's description, an untrusted text that is part of every model request."""

TOOL_MAX_BYTES = 65_536
"""Maximum bytes of a tool's name, description and input schema as JSON. The definition of a large tool has about 10
kB."""

TOOLS_MAX_BYTES = 1_048_576
"""Maximum bytes of all tools of a server as JSON: 250,000 tokens, more than most models accept."""

NAMES_MAX = 10_000
NAMES_MAX_BYTES = 4 * TOOLS_MAX_BYTES
"""Maximum number and bytes of the different tools that a connection offers over time. The SDK stores data about each
tool until the connection ends."""


class ServerBroke(Exception):
    """The server broke a bound, which ends its connection; the message names the bound."""


class Throttle:
    """Limits work to one second of work per second, with a burst of `burst_seconds`."""

    def __init__(self, burst_seconds: float = BURST_SECONDS) -> None:
        self._burst_seconds = burst_seconds
        self._free_at = -burst_seconds

    def late_seconds(self, seconds: float) -> float:
        """Add work of `seconds`. Returns the seconds to wait until this work is due; 0 if the work is due now."""
        now = anyio.current_time()
        self._free_at = max(self._free_at, now - self._burst_seconds) + seconds
        return max(0.0, self._free_at - now)

    def admits(self, seconds: float) -> bool:
        """Add work of `seconds` if it is due now, and return whether it was added."""
        now = anyio.current_time()
        free_at = max(self._free_at, now - self._burst_seconds) + seconds
        if free_at > now:
            return False
        self._free_at = free_at
        return True


class _Id(msgspec.Struct):
    """The fields of a message that determine whether it answers a request."""

    id: int | str | None = None
    method: str | None = None


_ID = msgspec.json.Decoder(_Id)


class Traffic:
    """The bounds of one connection to the server `name`. `end` is called with the reason when a bound ends the
    connection."""

    def __init__(self, name: str, server: Mcp, end: Callable[[str], None]) -> None:
        self.message_max_bytes = server.message_max_bytes
        self.name = name
        self._server = server
        self._end = end
        self._pace = Throttle()
        self._is_paced = False
        self._open_requests = 0
        self._names: set[str] = set()
        self._names_bytes = 0
        self._left_out = 0

    def broke(self, what: str) -> ServerBroke:
        """End the connection because the server did `what`. Returns the exception to raise."""
        self._end(f"the server {what}")
        return ServerBroke(f"the server {what}")

    def too_long(self) -> ServerBroke:
        """End the connection because of a message above the bound. Returns the exception to raise."""
        bound = f"{self.message_max_bytes} bytes (mcp.{self.name}.message_max_bytes)"
        return self.broke(f"sent a message of more than {bound}")

    def exited(self, status: int) -> None:
        """End the connection because the program has ended. An earlier reason of the connection's end is kept."""
        how = f"was ended by the signal {-status}" if status < 0 else f"ended with the exit status {status}"
        self._end(f"the program {how}; the lines mcp.stderr of the log have its error output")

    def check_values(self, values: int) -> None:
        """Raise ServerBroke if an event of several lines has too many values."""
        if values > self._server.message_max_values:
            bound = f"{self._server.message_max_values} values (mcp.{self.name}.message_max_values)"
            raise self.broke(f"sent an event with more than {bound}")

    async def take(self, message: bytes, *, messages: int = 1) -> bytes:
        """Return a complete message when its turn has come. A message with too many values is replaced by an error in
        answer to the same request. `messages` is 0 for a part of a message."""
        bounds = JsonBounds(self._server.message_max_values)
        values = message.count(b",") + message.count(b"[") + message.count(b"{")
        if not bounds.is_within(message):
            try:
                for _ in bounds.check(bytearray(message)):
                    await anyio.lowlevel.checkpoint()
            except TooLarge:
                message, values = self._refused(message), self._server.message_max_values
        await self.wait(messages=messages, size=len(message), values=min(values, self._server.message_max_values))
        return message

    async def wait(self, *, messages: int, size: int = 0, values: int = 0) -> None:
        """Wait until messages of this number and size may be processed."""
        seconds = messages / self._server.messages_per_second + size / BYTES_PER_SECOND + values / VALUES_PER_SECOND
        late_seconds = self._pace.late_seconds(seconds)
        if late_seconds:
            if not self._is_paced:
                self._is_paced = True
                _log.warning("mcp.slowed", server=self.name, detail="it sends more than it may")
            await anyio.sleep(late_seconds)

    def _refused(self, message: bytes) -> bytes:
        """Return the answer that replaces a message with too many values; b"" if the message answers no request."""
        try:
            found = _ID.decode(message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return b""
        if found.id is None or found.method is not None:
            return b""
        text = (
            f"the answer has more than {self._server.message_max_values} values "
            f"(mcp.{self.name}.message_max_values); ask for less"
        )
        return msgspec.json.encode({"jsonrpc": "2.0", "id": found.id, "error": {"code": -32603, "message": text}})

    def requested(self) -> None:
        """Count a request of the server. Raises ServerBroke if the server does not read the answers to its requests."""
        self._open_requests += 1
        if self._open_requests > REQUESTS_OPEN_MAX:
            raise self.broke(f"has {self._open_requests} open requests and does not read their answers")

    def answered(self) -> None:
        """Count an answer that the server has taken."""
        self._open_requests -= 1

    def tools(self, offered: list[Any]) -> list[JsonObject]:  # Any: JSON of the server
        """Return the tools of a listing that are within the bounds, reduced to the used fields, and log that others are
        left out.

        The output schema is left out: the SDK would check results against it, and a pattern in it could keep the event
        loop busy for hours.

        Raises:
            ServerBroke: the server has offered too many different tools.
        """
        kept: list[JsonObject] = []
        left_bytes, left_out = TOOLS_MAX_BYTES, 0
        for tool in offered:
            fitting = _fitting(tool)
            size = 0 if fitting is None else len(msgspec.json.encode(fitting))
            if fitting is None or size > min(TOOL_MAX_BYTES, left_bytes) or len(kept) == self._server.tools_max:
                left_out += 1
                continue
            left_bytes -= size
            kept.append(fitting)
            if fitting["name"] not in self._names:
                self._names.add(fitting["name"])
                self._names_bytes += size
        if len(self._names) > NAMES_MAX or self._names_bytes > NAMES_MAX_BYTES:
            raise self.broke(f"has offered {len(self._names)} different tools")
        if left_out != self._left_out:
            self._left_out = left_out
            _log.warning("mcp.tools_too_large", server=self.name, taken=len(kept), left_out=left_out)
        return kept


def _fitting(tool: Any) -> JsonObject | None:  # Any: JSON of the server
    """Return the used fields of a tool; None if `tool` is not a tool or its name is too long. The SDK refuses a whole
    list because of one tool without a name, or with a schema of something other than an object."""
    schema = tool.get("inputSchema") if isinstance(tool, dict) else None
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return None
    name = tool.get("name")
    if not isinstance(name, str) or len(name) > NAME_MAX_CHARACTERS:
        return None
    fitting = {key: tool[key] for key in ("name", "title", "description", "inputSchema") if tool.get(key) is not None}
    for key in ("title", "description"):
        text = fitting.pop(key, None)
        if isinstance(text, str):
            fitting[key] = text[:DESCRIPTION_MAX_CHARACTERS]
    return fitting


async def lines(pieces: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    """Yield the lines of a stream without their ends.

    Raises:
        OverflowError: a line has more than `most` bytes.
    """
    held = bytearray()
    async for piece in pieces:
        first, *others = piece.split(b"\n")
        held += first
        if len(held) > most:
            raise OverflowError
        for other in others:
            yield bytes(held)
            held = bytearray(other)
    if held:
        yield bytes(held)
