"""Listening sockets: opened before anybody is told of the port, lent to child processes, few bytes for the kernel.

`listening` is a port for one process. `SharedPort` is one for several of ours: each has a socket and a queue of its
own, and the kernel spreads connections over them by their addresses (SO_REUSEPORT, Linux). Used by `app.py` and
`worker.py`, and by `supervisor.py` for the processes that it starts. The rule: a port that anybody else has is refused.
"""

import socket
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Self

from protocol.errors import Conflict
from server.forks import close_in_children

__all__ = ["SharedPort", "inherited", "listening"]

SEND_BUFFER_BYTES = 65_536
"""What the kernel may keep for a reader who does not read (DESIGN §5)."""

BACKLOG = 2_048
"""Connections that may wait to be accepted: a reconnect herd after a restart."""


@contextmanager
def listening(host: str, port: int, setting: str = "--port", *, is_lent: bool = False) -> Generator[socket.socket]:
    """A listening socket. Raises Conflict when the port is taken; `setting` is where another is chosen. No child that
    is forked keeps it, unless it is there to be lent (`is_lent`)."""
    with _bound(host, port, setting) as listener, nullcontext() if is_lent else _ours_alone(listener):
        _listen(listener)
        yield listener


@contextmanager
def inherited(fd: int) -> Generator[socket.socket]:
    """The listening socket that the process was started with."""
    with socket.socket(fileno=fd) as listener, _ours_alone(listener):
        listener.set_inheritable(False)  # lent to us, not to what we start
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
    """Ours until it is closed, also while none of our processes listens. `port` 0 takes any free one. Who binds to it
    later with SO_REUSEPORT, as the same user, is let in by Linux all the same (socket(7)); no server of ours does.

    Raises:
        Conflict: anybody has the port, also another of our servers.
    """

    def __init__(self, host: str, port: int) -> None:
        # Bound without SO_REUSEPORT, or another server of the same user that has it would let us in; set afterwards, so
        # that our own are. It never listens: no connection comes to it.
        self._reserved = _bound(host, port, "--port")
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._host = host

    def listener(self) -> socket.socket:
        """One more; connections wait in it from now on until somebody accepts them, and are refused when it closes."""
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
            f"cannot listen on {host}:{port}: {taken.strerror}; stop what has it, or choose another: {setting}"
        ) from taken
    return bound


def _listen(bound: socket.socket) -> None:
    bound.listen(BACKLOG)
    bound.setblocking(False)
