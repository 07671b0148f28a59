"""Lets the kernel take a whole snapshot at once, although the send buffers of all connections are small.

With a small buffer, a snapshot of half a megabyte takes four turns of the event loop and a task that waits for them,
which is 40 % of the CPU of a join (`bench.join`), and a distant reader gets one buffer per round trip. So a connection
gets a larger buffer for the time in which it takes a snapshot. The larger buffers of a process have a limit together.
Without room for one more, and on other systems than Linux, the snapshot takes the longer way (decision 0051).
"""

import asyncio
import fcntl
import resource
import socket
import termios
from itertools import islice
from pathlib import Path

from threadcast.http.sockets import SEND_BUFFER_BYTES

__all__ = ["WIDE_MAX_BYTES", "WideBuffers"]

TCP_MEMORY = Path("/proc/sys/net/ipv4/tcp_mem")
"""The pages of memory from which on Linux economises with the buffers of TCP, is under pressure, and refuses more
(tcp(7))."""

ROOM_SHARE = 0.25
"""The larger buffers of a process take at most this share of the first of these: on machines of 4 and 24 GB, about 45
and 290 MB. Readers who join and do not read can keep this room occupied."""

WIDE_MAX_BYTES = 2_097_152
"""Maximum bytes of one larger buffer. The rest of a larger snapshot waits in the process, where all readers share its
bytes."""

KERNEL_SHARE = 1.125
"""Bytes of a send buffer that a byte of a large block takes, with the kernel's own data for each segment."""


LOOKS = 4
"""How many connections are looked at, when no room is left, for one whose reader has taken everything."""


class WideBuffers:
    """The larger send buffers of the connections of one process."""

    def __init__(self, room_bytes: int | None = None) -> None:
        self._room_bytes = _room_bytes() if room_bytes is None else room_bytes
        self._wide: dict[asyncio.BaseTransport, tuple[int, int]] = {}
        """The descriptor and the size of each larger buffer, in the order in which they are looked at."""

    def widen(self, transport: asyncio.BaseTransport, descriptor: int, size: int) -> bool:
        """Enlarge the send buffer of an open connection for a block of `size` bytes, until `narrow_if_sent` or
        `forget`. Returns False if the buffer stays as it is, because it is large enough, or no room is left."""
        wide = int(min(size * KERNEL_SHARE, WIDE_MAX_BYTES))
        if wide <= 2 * SEND_BUFFER_BYTES or transport in self._wide or not self._has_room(wide):
            return False
        _set_send_buffer(descriptor, wide // 2)  # the kernel doubles it (socket(7))
        self._wide[transport] = descriptor, wide
        self._room_bytes -= wide
        return True

    def narrow_if_sent(self, transport: asyncio.BaseTransport) -> bool:
        """Give a connection its small buffer again, if the reader's system has received all bytes. Returns whether it
        has."""
        if transport in self._wide:
            if not transport.is_closing():  # otherwise its descriptor may belong to another connection
                descriptor, _ = self._wide[transport]
                if any(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))):  # SIOCOUTQ (tcp(7))
                    return False
                _set_send_buffer(descriptor, SEND_BUFFER_BYTES)
            self.forget(transport)
        return True

    def forget(self, transport: asyncio.BaseTransport) -> None:
        """Take back the room of a connection that has ended. Safe to repeat."""
        _, wide = self._wide.pop(transport, (0, 0))
        self._room_bytes += wide

    def _has_room(self, wanted: int) -> bool:
        for transport in list(islice(self._wide, LOOKS)):
            if self._room_bytes >= wanted:
                break
            if not self.narrow_if_sent(transport):
                self._wide[transport] = self._wide.pop(transport)  # the next call looks at others
        return self._room_bytes >= wanted


def _room_bytes() -> int:
    """Return the maximum bytes of all larger buffers of a process."""
    try:
        pages = int(TCP_MEMORY.read_text().split()[0])
    except (OSError, ValueError, IndexError):  # another system than Linux
        return 0
    return int(pages * resource.getpagesize() * ROOM_SHARE)


def _set_send_buffer(descriptor: int, size: int) -> None:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=descriptor)  # of either family
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
    finally:
        sock.detach()
