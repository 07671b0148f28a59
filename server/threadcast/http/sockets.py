"""Opens listening sockets, with small kernel buffers, for one process or for several child processes.

`listening` opens a port for one process. `SharedPort` opens a port for several processes: each has its own socket and
queue, and the kernel distributes connections by their addresses (SO_REUSEPORT, Linux). A port that another program uses
is refused.
"""

import socket
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Self

from threadcast.base.forks import close_in_children
from threadcast_protocol.wire.errors import Conflict

__all__ = ["SEND_BUFFER_BYTES", "SharedPort", "inherited", "listening"]

SEND_BUFFER_BYTES = 65_536
"""Bytes that the kernel may buffer for a reader who does not read (DESIGN §5)."""

BACKLOG = 2_048
"""Maximum number of connections that wait to be accepted: after a restart, many readers reconnect at the same time."""


@contextmanager
def listening(host: str, port: int, setting: str = "--port", *, is_lent: bool = False) -> Generator[socket.socket]:
    """Open a listening socket. Raises Conflict when the port is taken; `setting` names the setting of the port. Forked
    children do not keep the socket, unless `is_lent`."""
    with _bound(host, port, setting) as listener, nullcontext() if is_lent else _ours_alone(listener):
        _listen(listener)
        yield listener


@contextmanager
def inherited(fd: int) -> Generator[socket.socket]:
    """Open the listening socket that the process inherited as `fd`."""
    with socket.socket(fileno=fd) as listener, _ours_alone(listener):
        listener.set_inheritable(False)  # not passed on to our own children
        listener.setblocking(False)
        yield listener


@contextmanager
def _ours_alone(listener: socket.socket) -> Generator[None]:
    forget = close_in_children(lambda: [listener.fileno()])
    try:
        yield
    finally:
        forget()


class SharedPort:
    """A port reserved until it is closed, even while no process listens. `port` 0 takes a free port. Linux still admits
    a later bind with SO_REUSEPORT by the same user (socket(7)); our servers never do that.

    Raises:
        Conflict: another program or another Threadcast server has the port.
    """

    def __init__(self, host: str, port: int) -> None:
        # Bound without SO_REUSEPORT, so that a port of another server of the same user is refused; the option is set
        # afterwards to admit our own sockets. This socket never listens and receives no connection.
        self._reserved = _bound(host, port, "--port")
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._host = host

    def listener(self) -> socket.socket:
        """Return a further listening socket. Connections wait in the socket until a process accepts them; when the
        socket closes, they are refused."""
        listener = _bound(self._host, self._reserved.getsockname()[1], "--port", is_shared=True)
        _listen(listener)
        return listener

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reserved.close()


def _bound(host: str, port: int, setting: str, *, is_shared: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    if is_shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind((host, port))
    except OSError as taken:
        bound.close()
        raise Conflict(
            f"cannot listen on {host}:{port}: {taken.strerror}; "
            f"stop the program that uses it, or choose another: {setting}"
        ) from taken
    return bound


def _listen(bound: socket.socket) -> None:
    bound.listen(BACKLOG)
    bound.setblocking(False)
