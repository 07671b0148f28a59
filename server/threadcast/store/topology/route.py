"""Opens connections to the store's primary, and decides when open connections must be closed after a failover.

A route makes and opens connections for lanes, bells and channels. To open a connection, the route asks the `Finder`, if
there is one, for the primary's address, connects, and checks that the server is a primary. Each time a connection is
opened, the host name is resolved and the sentinels are asked again.

Open connections belong to an *era*, and an era has one server. Every sign that this server is no longer the primary (a
READONLY reply, a changed role, another server at the same address, an answer of the sentinels) ends the era. Each
connection of an ended era is closed before its next use, even if its user would never notice that the server was
demoted.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

import anyio
import hiredis
import structlog
from redis import exceptions as redis_errors
from redis._parsers.hiredis import NOT_ENOUGH_DATA
from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool, DefaultParser
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from threadcast_protocol.wire.errors import Unavailable

__all__ = [
    "CONNECT_TIMEOUT_SECONDS",
    "NOT_AT_HAND",
    "PRIMARY",
    "Address",
    "Finder",
    "Route",
    "Value",
    "connections_to",
    "hang_up",
    "pack",
    "progress_of",
    "reply_at_hand",
    "reply_or_refusal",
    "settled_seconds_of",
]

Value = bytes | str | int

CONNECT_TIMEOUT_SECONDS = 1.0
"""Seconds to connect. Redis accepts a connection within a round trip; if a connection takes longer, no server
listens."""

PRIMARY = b"master"
"""The first word of a primary's answer to ROLE; a replica answers `slave`."""

WATCH_SECONDS = 1.0
"""Seconds between checks of the server's role and the finder's address. Without these checks a connection that only
listens would not notice a demotion. With them, readers of a chat are on the new primary within 2 s (this interval and a
rebuild of the connection). A check costs one small command."""

PROBE_SECONDS = 5.0
"""Seconds between probes. A probe opens a new connection and checks which server answers. Probes notice that an address
has moved to another server while connections to the former server stay open. Probes are not made every second, because
a new connection costs a TLS server some milliseconds."""

SERVERS_KEPT = 16
"""Number of server ids that are remembered. Without this memory, two servers that alternate at one address (behind a
proxy) would end one era per connection instead of two eras in all. If a remembered server was demoted, the check of its
role notices the demotion."""

_KEEPALIVE = {"socket_keepalive": True}
"""Keepalive options, for TCP only; redis-py's defaults find a dead peer in 45 s. The callers' deadlines find such a
peer sooner."""

_log = structlog.get_logger(__name__)


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Finder(Protocol):
    """Finds the address of the primary."""

    async def find(self) -> Address:
        """Return the primary's address. Raises Unavailable when no sentinel names the primary within a deadline, which
        is below CONNECT_TIMEOUT_SECONDS."""

    async def close(self) -> None: ...


def pack(*command: Value) -> bytes:
    """Return a command as bytes for the socket. For 27 arguments, this function takes 3 µs; redis-py's own packing
    takes 17 µs."""
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type] # its stub means tuple[..., ...]
    return packed


def connections_to(url: str) -> ConnectionPool:
    """Return a pool that is used only to make connections with the options of `url`. The pool does not assign
    connections, because each user keeps its own connection, which takes a third of the time."""
    tcp = {} if url.startswith("unix:") else _KEEPALIVE
    return ConnectionPool.from_url(
        url,
        protocol=2,  # with RESP2 all replies of the pub/sub connection have one shape; nothing here needs RESP3
        decode_responses=False,
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=CONNECT_TIMEOUT_SECONDS,
        socket_timeout=None,  # each exchange has a deadline of its own; a timer per reply costs more
        driver_info=None,
        parser_class=_Parser,
        **tcp,
    )


NOT_AT_HAND = NOT_ENOUGH_DATA
"""The value that `reply_at_hand` returns if the next reply has not been received yet."""


class _Parser(DefaultParser):  # type: ignore[valid-type,misc] # redis-py selects one of two classes at import
    """Counts the received chunks, so that a large answer in transit is not mistaken for silence."""

    pieces_count = 0

    async def read_from_socket(self) -> bool:
        came: bool = await super().read_from_socket()
        self.pieces_count += 1
        return came

    def at_hand(self) -> object:
        """Return the next reply if its bytes have been read from the socket, else NOT_AT_HAND. An error reply is
        returned, not raised."""
        return self._reader.gets() if self._connected else NOT_AT_HAND


def progress_of(connection: AbstractConnection) -> tuple[int, int]:
    """Return the number of received chunks (at most 64 kB each) of a connection made by `Route`, and the bytes that
    wait to be sent."""
    parser, writer = connection._parser, connection._writer
    pieces_count = parser.pieces_count if isinstance(parser, _Parser) else 0
    return pieces_count, 0 if writer is None else writer.transport.get_write_buffer_size()


class Route:
    """Connects to the server at `url`, or to the address that `finder` returns, with the user, password and options of
    `url`."""

    def __init__(self, url: str, finder: Finder | None = None) -> None:
        self._factory = connections_to(url)
        self.database = int(self._factory.connection_kwargs.get("db") or 0)
        self.finder = finder
        self.address: Address | None = None
        """The address that the finder returned last; None without a finder, and before the first query."""
        self.era = 1
        self._era_of: WeakKeyDictionary[AbstractConnection, int] = WeakKeyDictionary()
        self._servers: deque[bytes] = deque(maxlen=SERVERS_KEPT)
        self._era_ended = asyncio.Event()

    def connection(self) -> AbstractConnection:
        """Return a new connection, not yet open, for the caller's blocking or listening commands. The caller
        disconnects it."""
        connection: AbstractConnection = self._factory.make_connection()  # type: ignore[no-untyped-call] # redis-py's
        return connection

    async def open(self, connection: AbstractConnection) -> None:
        """Prepare the connection for the next command: connect, or reconnect when the server has hung up or the era has
        ended. Makes one attempt; the caller sets the deadline.

        Raises:
            Unavailable: the finder has no address, or the server is not a primary. Errors of redis-py and the system
            pass through when the server cannot be reached.
        """
        if connection.is_connected and (not self.is_current(connection) or await connection.can_read()):
            # The era has ended, or the connection is closed or has unexpected bytes: no later reply could be trusted.
            await connection.disconnect(nowait=True)
        if connection.is_connected:
            return
        await self.seek()
        era = self.era
        if self.address is not None and isinstance(connection, Connection):
            connection.host, connection.port = self.address
        await connection.connect()  # type: ignore[no-untyped-call] # redis-py's
        try:
            server = await self._server_of(connection, era)
        except BaseException:
            await hang_up(connection)
            raise
        if server and server not in self._servers:
            self._servers.append(server)
            if len(self._servers) > 1 and era == self.era:
                self.leave(era, "another server answers")
                era = self.era
        self._era_of[connection] = era

    async def seek(self) -> None:
        """Ask the finder, if there is one, for the primary's address. A changed address ends the era. Raises
        Unavailable when the finder has no answer."""
        if self.finder is None:
            return
        found = await self.finder.find()
        if self.address not in (None, found):
            self.leave(self.era, "the primary is elsewhere")
        self.address = found

    async def watch(self, ask: Callable[[bytes], Awaitable[object]]) -> None:
        """Check for ever for changes of the primary that no open connection would notice. `ask` sends a command to the
        store."""
        probe = self.connection()
        probed_at = anyio.current_time()
        while True:
            await anyio.sleep(WATCH_SECONDS)
            try:
                await self.seek()
                era = self.era
                with anyio.move_on_after(WATCH_SECONDS):  # the finder notices a hanging server sooner
                    if _is_replica(await ask(b"ROLE")):
                        self.leave(era, "it is a replica now")
                if anyio.current_time() - probed_at >= PROBE_SECONDS:
                    probed_at = anyio.current_time()
                    with anyio.fail_after(CONNECT_TIMEOUT_SECONDS):
                        await self.open(probe)
            except Exception as wrong:  # boundary: callers of the store get the error; this loop continues
                _log.debug("store.watch_failed", error=str(wrong))
            finally:
                await hang_up(probe)  # each probe needs a new connection

    def is_current(self, connection: AbstractConnection) -> bool:
        return self._era_of.get(connection) == self.era

    def leave(self, era: int, why: str) -> None:
        """End `era`, if it is the present era. Connections of the ended era are closed before their next use."""
        if era != self.era:
            return
        if era in self._era_of.values():  # without any connection in this era, other log lines report the outage
            _log.warning("store.left", why=why, era=era)
        self.era += 1
        ended, self._era_ended = self._era_ended, asyncio.Event()
        ended.set()

    def leave_if_demoted(self, connection: AbstractConnection, refusal: Exception) -> None:
        """End the connection's era if the server refused a command because it is not a primary."""
        if isinstance(refusal, redis_errors.ReadOnlyError) or str(refusal).startswith(("UNBLOCKED", "MASTERDOWN")):
            self.leave(self._era_of.get(connection, 0), "it is a replica now")

    async def left(self, connection: AbstractConnection) -> None:
        """Wait until this open connection must be closed. Listeners call this method, because they would not notice a
        failover by themselves."""
        while self.is_current(connection):
            await self._era_ended.wait()

    async def _server_of(self, connection: AbstractConnection, era: int) -> bytes:
        """Return the process id of the server that answers, b"" if it does not report one.

        A server or proxy without permission or support for ROLE and INFO is assumed to be the primary. Raises
        Unavailable for a replica.
        """
        await connection.send_packed_command(pack(b"ROLE") + pack(b"INFO", b"server"), False)
        role = await reply_or_refusal(connection)
        info = await reply_or_refusal(connection)
        if _is_replica(role):
            self.leave(era, "it is a replica now")
            raise Unavailable("the store is a read-only replica just now")
        if not isinstance(info, bytes):
            return b""
        return next((line[7:].strip() for line in info.splitlines() if line.startswith(b"run_id:")), b"")


def _is_replica(role: object) -> bool:
    return isinstance(role, list) and bool(role) and role[0] != PRIMARY


async def hang_up(connection: AbstractConnection) -> None:
    """Close a connection; closing a broken one may fail harmlessly."""
    with suppress(Exception):
        await connection.disconnect(nowait=True)


async def settled_seconds_of(connection: AbstractConnection) -> float:
    """Return the minimum number of seconds for which the server has been a primary. Returns 0 if the server does not
    report its uptime, or was promoted after its start, because a server does not report the time of its promotion."""
    await connection.send_packed_command(pack(b"INFO", b"server") + pack(b"INFO", b"replication"), False)
    known: dict[bytes, bytes] = {}
    for _ in range(2):
        info = await reply_or_refusal(connection)
        lines = info.splitlines() if isinstance(info, bytes) else []
        known |= {name: value for name, _, value in (line.partition(b":") for line in lines)}
    was_promoted = known.get(b"master_replid2", b"?").strip(b"0") != b""
    return 0.0 if was_promoted else float(known.get(b"uptime_in_seconds", b"0"))


def reply_at_hand(connection: AbstractConnection) -> object:
    """Return the next reply if it was received together with earlier replies, else NOT_AT_HAND. A refusal is returned,
    as by `reply_or_refusal`; any other error is raised. Most replies of a pipeline and many messages of channels arrive
    together, and redis-py's own read takes 4 us for each reply or message."""
    parser = connection._parser
    reply = parser.at_hand() if isinstance(parser, _Parser) else NOT_AT_HAND
    if isinstance(reply, Exception) and not isinstance(reply, redis_errors.ResponseError):
        raise reply
    return reply


async def reply_or_refusal(connection: AbstractConnection) -> object:
    """Return the next reply; an error reply is returned, not raised."""
    try:
        return await connection.read_response()
    except redis_errors.ResponseError as refused:
        return refused
