"""Which names and addresses only this machine reaches.

Both ends decide by it: a server without tokens listens nowhere else (PROTOCOL §1), and a client asks no proxy for the
way there. Nothing is looked up.
"""

import ipaddress

__all__ = ["is_loopback"]


def is_loopback(host: str) -> bool:
    """Is this a name or address that only this machine reaches (RFC 6761 §6.3 for names)?"""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False
