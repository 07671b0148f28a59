"""The way to the store's primary: where a connection goes when it opens, and when those that are open must be left.

It does not know what is said on a connection. A route makes connections (lanes, bell and channels hold and use them)
and opens them: it asks a `Finder` where the primary is, if one was given, connects, and has the server say that it is a
primary. Opening goes wherever the primary is by then: a name is looked up anew each time, sentinels are asked anew.

The rule: what is open belongs to an *era*, and an era has one server. Whatever says that this server is not the primary
any more (a READONLY reply, a role that changed, another server at the same address, the sentinels) ends the era; every
connection of it is closed before its next use, also those that would have stayed silently with a demoted server.
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
from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool, DefaultParser
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from protocol.errors import Unavailable

__all__ = [
    "CONNECT_TIMEOUT_SECONDS",
    "PRIMARY",
    "Address",
    "Finder",
    "Route",
    "Value",
    "connections_to",
    "pack",
    "progress_of",
    "reply_or_refusal",
]

Value = bytes | str | int

CONNECT_TIMEOUT_SECONDS = 1.0
"""Redis accepts within a round trip; longer means that nobody listens."""

PRIMARY = b"master"
"""The first word of a primary's answer to ROLE; that of a replica is `slave`."""

WATCH_SECONDS = 1.0
"""How often the server is asked for its role, and the finder for the address. Who only listens would not notice a
demotion otherwise; readers of a chat notice within 2 s, this and a rebuild. One tiny command a second."""

PROBE_SECONDS = 5.0
"""How often a fresh connection looks which server answers. It finds that an address has moved while the connections to
the server it has left go on; one connect costs a TLS server some milliseconds, so not every second."""

SERVERS_KEPT = 16
"""Servers that count as known: two that take turns at one address (a proxy over several) end two eras, not one each
time somebody connects. That a known one lost its role is found by the role."""

_KEEPALIVE = {"socket_keepalive": True}
"""TCP only; redis-py's defaults find a dead peer in 45 s. The deadlines of those who ask find it sooner."""

_log = structlog.get_logger(__name__)


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Finder(Protocol):
    """Who knows where the primary is."""

    async def find(self) -> Address:
        """Raises Unavailable when nobody can say; bounded by a deadline of its own, below CONNECT_TIMEOUT_SECONDS."""

    async def close(self) -> None: ...


def pack(*command: Value) -> bytes:
    """A command as bytes for the socket: 3 µs where redis-py's own packing takes 17 (27 arguments)."""
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type] # its stub means tuple[..., ...]
    return packed


def connections_to(url: str) -> ConnectionPool:
    """What reads a URL and makes connections. No pool to us: who uses a connection holds it, at a third of the cost."""
    tcp = {} if url.startswith("unix:") else _KEEPALIVE
    return ConnectionPool.from_url(
        url,
        protocol=2,  # the pub/sub connection's replies have one shape; nothing here wants RESP3
        decode_responses=False,
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=CONNECT_TIMEOUT_SECONDS,
        socket_timeout=None,  # a deadline of ours stands around each exchange; a timer per reply costs more
        driver_info=None,
        parser_class=_Parser,
        **tcp,
    )


class _Parser(DefaultParser):  # type: ignore[valid-type,misc] # redis-py picks one of two classes when it is imported
    """Counts the pieces that arrive, so that a large answer on its way is not taken for silence."""

    pieces_count = 0

    async def read_from_socket(self) -> bool:
        came: bool = await super().read_from_socket()
        self.pieces_count += 1
        return came


def progress_of(connection: AbstractConnection) -> tuple[int, int]:
    """Return how many pieces of at most 64 kB have arrived on this connection, which a `Route` made, and how many bytes
    wait to be sent."""
    parser, writer = connection._parser, connection._writer
    pieces_count = parser.pieces_count if isinstance(parser, _Parser) else 0
    return pieces_count, 0 if writer is None else writer.transport.get_write_buffer_size()


class Route:
    """To the server at `url`, or with its user, password and options to wherever `finder` says the primary is."""

    def __init__(self, url: str, finder: Finder | None = None) -> None:
        self._factory = connections_to(url)
        self.database = int(self._factory.connection_kwargs.get("db") or 0)
        self.finder = finder
        self.address: Address | None = None
        """Where the finder last said that the primary is; None without one, and before it was asked."""
        self.era = 1
        self._era_of: WeakKeyDictionary[AbstractConnection, int] = WeakKeyDictionary()
        self._servers: deque[bytes] = deque(maxlen=SERVERS_KEPT)
        self._era_ended = asyncio.Event()

    def connection(self) -> AbstractConnection:
        """A connection of the caller's own, not yet open, for what blocks or listens. The caller disconnects it."""
        connection: AbstractConnection = self._factory.make_connection()  # type: ignore[no-untyped-call] # redis-py's
        return connection

    async def open(self, connection: AbstractConnection) -> None:
        """Make it good for the next command: connect, or connect anew when the server has hung up or the era has ended.
        No retry: the caller's deadline holds.

        Raises:
            Unavailable: the finder cannot say where to go, or what answers there is no primary.
            redis-py's and the system's errors: it cannot be reached.
        """
        if connection.is_connected and (not self.is_current(connection) or await connection.can_read()):
            # Of a server that is left; or with unasked-for bytes, or at its end: nothing that follows could be trusted.
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
            with suppress(Exception):  # it is of no use in any case
                await connection.disconnect(nowait=True)
            raise
        if server and server not in self._servers:
            self._servers.append(server)
            if len(self._servers) > 1 and era == self.era:
                self.leave(era, "another server answers")
                era = self.era
        self._era_of[connection] = era

    async def seek(self) -> None:
        """Ask the finder, if there is one; another address ends the era. Raises Unavailable when it cannot say."""
        if self.finder is None:
            return
        found = await self.finder.find()
        if self.address not in (None, found):
            self.leave(self.era, "the primary is elsewhere")
        self.address = found

    async def watch(self, ask: Callable[[bytes], Awaitable[object]]) -> None:
        """For ever: find out by looking what no connection would notice. `ask` sends a command to the store."""
        probe = self.connection()
        probed_at = anyio.current_time()
        while True:
            await anyio.sleep(WATCH_SECONDS)
            try:
                await self.seek()
                era = self.era
                with anyio.move_on_after(WATCH_SECONDS):  # of a server that hangs the finder hears sooner
                    if _is_replica(await ask(b"ROLE")):
                        self.leave(era, "it is a replica now")
                if anyio.current_time() - probed_at >= PROBE_SECONDS:
                    probed_at = anyio.current_time()
                    with anyio.fail_after(CONNECT_TIMEOUT_SECONDS):
                        await self.open(probe)
            except Exception as wrong:  # boundary: whoever needs the store hears what is wrong; the watch goes on
                _log.debug("store.watch_failed", error=str(wrong))
            finally:
                with suppress(Exception):  # the next probe shall be fresh
                    await probe.disconnect(nowait=True)

    def is_current(self, connection: AbstractConnection) -> bool:
        return self._era_of.get(connection) == self.era

    def leave(self, era: int, why: str) -> None:
        """End `era`, unless it has ended: what it opened is closed before its next use, by its holder."""
        if era != self.era:
            return
        if era in self._era_of.values():  # else nothing was reached in it, which others say
            _log.warning("store.left", why=why, era=era)
        self.era += 1
        ended, self._era_ended = self._era_ended, asyncio.Event()
        ended.set()

    def leave_if_demoted(self, connection: AbstractConnection, refusal: Exception) -> None:
        """A server refused; when it did so because it is no primary, the era of that connection ends."""
        if isinstance(refusal, redis_errors.ReadOnlyError) or str(refusal).startswith(("UNBLOCKED", "MASTERDOWN")):
            self.leave(self._era_of.get(connection, 0), "it is a replica now")

    async def left(self, connection: AbstractConnection) -> None:
        """Return once that connection, which is open, should be closed. For who listens and would not notice."""
        while self.is_current(connection):
            await self._era_ended.wait()

    async def _server_of(self, connection: AbstractConnection, era: int) -> bytes:
        """Which server answers there: the id of its process, b"" if it does not say. Raises Unavailable of a replica.

        A server or a proxy that may not or does not know ROLE and INFO is taken for what we were told it is.
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


async def reply_or_refusal(connection: AbstractConnection) -> object:
    """The next reply; an error that the server answered is returned."""
    try:
        return await connection.read_response()
    except redis_errors.ResponseError as refused:
        return refused
