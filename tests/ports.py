"""Ports that stay free until a server listens on them, for servers that cannot listen on port 0.

They lie below the range from which the kernel gives ports to connections and to who asks for any, so none of the many
other processes of a test run takes one by chance, also not between a server's death and its return. Drawn at random,
so that test files side by side do not meet. Servers that can listen on port 0 must do so.
"""

import random
import socket
from pathlib import Path

__all__ = ["free_port", "free_ports"]

FIRST_PORT = 10_000
USUAL_END = 32_768
"""Where the kernel's own range begins on Linux; elsewhere it begins later."""

TRIES = 1_000
_random = random.SystemRandom()


def free_port() -> int:
    """Returns a port on which no process listens on loopback now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many different ones. Raises LookupError when none is to be found."""
    found: list[int] = []
    for port in _random.sample(range(FIRST_PORT, _end()), TRIES):
        if len(found) == count:
            return found
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    raise LookupError(f"no {count} free ports between {FIRST_PORT} and {_end()} in {TRIES} tries")


def _end() -> int:
    """The first port that the kernel gives away by itself; the usual one where that leaves no room below."""
    try:
        begins = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return USUAL_END
    return begins if begins >= FIRST_PORT + TRIES else USUAL_END
