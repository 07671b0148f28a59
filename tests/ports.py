"""Ports that stay free until a server listens on them, for servers that cannot listen on port 0.

The ports are below the range from which the kernel assigns ports, so no other process of a test run gets such a port by
chance, not even between a server's death and its restart. The ports are drawn at random, so that test files side by
side do not collide. Servers that can listen on port 0 must do so.
"""

import random
import socket
from pathlib import Path

__all__ = ["free_port", "free_ports"]

FIRST_PORT = 10_000
USUAL_END = 32_768
"""The beginning of the kernel's own range of ports on Linux; on other systems the range begins higher."""

TRIES = 1_000
_random = random.SystemRandom()


def free_port() -> int:
    """Returns a port on which no process listens on loopback now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return this many different ports. Raises LookupError when no free port is found."""
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
    """Return the first port that the kernel assigns by itself, or `USUAL_END` if too few ports are below that port."""
    try:
        begins = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return USUAL_END
    return begins if begins >= FIRST_PORT + TRIES else USUAL_END
