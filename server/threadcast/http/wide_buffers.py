"""Lets the kernel take a whole snapshot at once, although the send buffers of all connections are small.

With a small buffer, a snapshot of half a megabyte takes four turns of the event loop, and a task that waits for them:
30 % of the CPU of such a join (`bench.join`). So a connection gets a larger buffer for the time in which its reader
takes a snapshot. The larger buffers of a process share one room. Without room for one more, and on other systems than
Linux, the snapshot is sent in parts, as through a small buffer (decision 0051).
"""

import asyncio
import fcntl
import socket
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import NamedTuple

from threadcast.base.machine_memory import machine_bytes
from threadcast.http.sockets import SEND_BUFFER_BYTES

__all__ = ["WIDE_MAX_BYTES", "WideBuffers"]

ROOM_SHARE = 1 / 64
"""The share of the memory of the machine, or of the container, that all larger buffers of a process may take: 62 MB of
4 GB."""

WIDE_MAX_BYTES = 4_194_304
"""Maximum bytes of one larger buffer, which is also the default maximum of the buffers that Linux enlarges by itself
(tcp_wmem, tcp(7)). The rest of a larger snapshot waits in the process, where all readers share its bytes."""

KERNEL_SHARE = 1.125
"""The size of the buffer for a block, as a multiple of the block: the kernel adds data about each segment."""

LOOKS = 4
"""How many connections are looked at, when no room is left, for one whose reader has taken its snapshot."""


class _Wide(NamedTuple):
    """A connection with a larger buffer of `size` bytes. `seen_bytes` of it were not received when it was looked at."""

    transport: asyncio.Transport
    descriptor: int
    size: int
    seen_bytes: int = -1


class WideBuffers:
    """The larger send buffers of the connections of one process. A connection is named by an object that lives as long
    as the connection, such as its flow control.

    A stream whose bytes are all in the kernel cannot notice that its reader takes none of them. So these connections
    are looked at every `stall_seconds`, and one whose reader has received nothing since the last look is dropped.
    """

    def __init__(self, stall_seconds: float, room_bytes: int | None = None) -> None:
        """Without `room_bytes`, the room is `ROOM_SHARE` of the memory."""
        self._stall_seconds = stall_seconds
        self._room_bytes = int(machine_bytes() * ROOM_SHARE) if room_bytes is None else room_bytes
        if sys.platform != "linux":
            self._room_bytes = 0
        self._wide: dict[object, _Wide] = {}  # in the order in which `_has_room` looks at them
        self._is_looking = False

    def widen(self, connection: object, transport: asyncio.Transport, descriptor: int, block_bytes: int) -> bool:
        """Enlarge the buffer of an open connection for a block, until `narrow_if_sent` or `forget`. Returns whether the
        connection has a larger buffer now. It has none if the small one is large enough or no room is left."""
        before = self._wide.pop(connection, None)  # not among those that are looked at for room
        had = 0 if before is None else before.size
        wanted = int(min(block_bytes * KERNEL_SHARE, WIDE_MAX_BYTES))
        if wanted > max(had, 2 * SEND_BUFFER_BYTES) and self._has_room(wanted - had):
            with suppress(OSError):  # such as a connection that has just ended
                wide = _set_send_buffer(descriptor, wanted // 2)  # the kernel doubles it
                self._room_bytes -= wide - had
                had = wide
        if had:
            self._wide[connection] = _Wide(transport, descriptor, had)
            self._look_later()
        return had > 0

    def narrow_if_sent(self, connection: object) -> bool:
        """Give a connection its small buffer again, if the small one can hold what its reader has not received yet.
        Returns whether the connection has a small buffer now."""
        wide = self._wide.get(connection)
        if wide is None:
            return True
        if wide.transport.is_closing() or self.unreceived_bytes(connection) > SEND_BUFFER_BYTES:
            return False
        with suppress(OSError):
            _set_send_buffer(wide.descriptor, SEND_BUFFER_BYTES)
        self._give_back(self._wide.pop(connection).size)
        return True

    def unreceived_bytes(self, connection: object) -> int:
        """Return how many bytes in the larger buffer of a connection the reader has not received yet. Returns 0 for a
        small buffer."""
        wide = self._wide.get(connection)
        if wide is None or wide.transport.is_closing():  # then its descriptor may belong to another connection
            return 0
        return _unreceived_bytes(wide.descriptor)

    def forget(self, connection: object, *, is_reset: bool) -> None:
        """Forget a connection that ends, just before its descriptor is closed. Unless it was reset, the kernel keeps
        what its reader has not received yet, until it is received, or nothing was received for `stall_seconds`
        (TCP_USER_TIMEOUT, tcp(7)). The room comes back after that time."""
        wide = self._wide.pop(connection, None)
        if wide is None:
            return
        if is_reset or _unreceived_bytes(wide.descriptor) <= SEND_BUFFER_BYTES:
            self._give_back(wide.size)
            return
        with suppress(OSError), _socket(wide.descriptor) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self._stall_seconds * 1_000))
        asyncio.get_running_loop().call_later(self._stall_seconds, self._give_back, wide.size)

    def look(self) -> None:
        """Drop the connections whose readers have received nothing since the last look. Called by a timer."""
        self._is_looking = False
        for connection in list(self._wide):
            if self.narrow_if_sent(connection):
                continue
            wide = self._wide[connection]
            unreceived = self.unreceived_bytes(connection)
            if unreceived == wide.seen_bytes:
                wide.transport.abort()
            self._wide[connection] = wide._replace(seen_bytes=unreceived)
        if self._wide:
            self._look_later()

    def _look_later(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_later(self._stall_seconds, self.look)

    def _give_back(self, size: int) -> None:
        self._room_bytes += size

    def _has_room(self, wanted: int) -> bool:
        for connection in list(islice(self._wide, LOOKS)):
            if self._room_bytes >= wanted:
                break
            if not self.narrow_if_sent(connection):
                self._wide[connection] = self._wide.pop(connection)  # the next call looks at others
        return self._room_bytes >= wanted


@contextmanager
def _socket(descriptor: int) -> Iterator[socket.socket]:
    """Yield a socket object for an open descriptor."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=descriptor)  # of either family
    try:
        yield sock
    finally:
        sock.detach()


def _set_send_buffer(descriptor: int, size: int) -> int:
    """Set the size of a send buffer. Returns the size as the kernel counts it: twice `size`, but at most twice
    net.core.wmem_max (socket(7)). Raises OSError."""
    with _socket(descriptor) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def _unreceived_bytes(descriptor: int) -> int:
    """Return how many bytes in a send buffer the other side has not received yet (SIOCOUTQ, tcp(7))."""
    with suppress(OSError):  # the connection was reset
        return int.from_bytes(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    return 0
