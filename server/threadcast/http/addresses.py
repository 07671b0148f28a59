"""Addresses of callers: defines which addresses count as one caller, and finds the address from which a request through
a trusted proxy came."""

import ipaddress
from collections.abc import Iterable, Sequence

from starlette.datastructures import Headers
from starlette.types import Scope

__all__ = ["LOOPBACK", "Address", "Network", "address_of", "caller_of", "networks_of", "unit_of"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK = ("127.0.0.0/8", "::1/128")
"""Networks of the machine itself (RFC 5735, RFC 4291 §2.5.3), from which a local proxy or a test connects."""

IPV6_NETWORK_BITS = 64
"""Addresses of one IPv6 network count as one address, because a host may choose any address of its network (RFC 4291
§2.5.1)."""

FORWARDED_MAX = 20
"""Maximum addresses of `X-Forwarded-For` that are read, counted from the right: more than any chain of proxies has."""


def networks_of(texts: Iterable[str]) -> list[Network]:
    """Return the networks of addresses or networks such as 10.0.0.7 and 10.0.0.0/8. Raises ValueError."""
    return [ipaddress.ip_network(each, strict=False) for each in texts]


def address_of(text: str) -> Address | None:
    """Return the address that a text names; None if the text is no address. An IPv4 address inside an IPv6 address is
    returned as IPv4."""
    try:
        parsed = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


def unit_of(address: Address) -> str:
    """Return the address, or its network for IPv6: the unit in which callers are counted."""
    if address.version == 6:
        return str(ipaddress.ip_network((address, IPV6_NETWORK_BITS), strict=False))
    return str(address)


def caller_of(scope: Scope, proxies: Sequence[Network]) -> str:
    """Return the unit (`unit_of`) of the address that a request came from; '' for a socket without addresses.

    If the connection comes from a proxy in `proxies`, the caller is the last address of `X-Forwarded-For` that is not a
    proxy's: each proxy appends the address that it sees, and addresses before that one may be forged.
    """
    peer = address_of(scope["client"][0]) if scope.get("client") else None
    if peer is None:
        return ""
    told = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
    for text in reversed(told[-FORWARDED_MAX:]):
        if not any(peer in network for network in proxies):
            break
        peer = address_of(_without_port(text.strip())) or peer
    return unit_of(peer)


def _without_port(text: str) -> str:
    """Return the address of "192.0.2.1:443" or "[2001:db8::1]:443", as some proxies write it."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
