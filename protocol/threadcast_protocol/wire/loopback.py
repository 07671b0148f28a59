"""Recognizes names and addresses that only this machine can reach.

A server without tokens listens on such addresses only (PROTOCOL §1), and clients use no proxy for them. Names are not
resolved.
"""

import ipaddress

__all__ = ["is_loopback"]


_USUAL = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts that need no parsing, which takes 4 us: a server without tokens checks each request."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`, a name or an address (RFC 6761 §6.3 for names)."""
    name = host.strip("[]").rstrip(".").lower()
    if name in _USUAL or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False
