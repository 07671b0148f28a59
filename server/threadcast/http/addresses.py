"""Addresses of callers: what counts as one address, and which address a request through a trusted proxy came from."""

import ipaddress
from collections.abc import Iterable, Sequence

from starlette.datastructures import Headers
from starlette.types import Scope

__all__ = ["LOOPBACK", "Address", "Network", "address_of", "caller_of", "networks_of", "unit_of"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK = ("127.0.0.0/8", "::1/128")
"""Networks of the machine itself (RFC 5735, RFC 4291 §2.5.3): a proxy or a test beside the server."""

IPV6_NETWORK_BITS = 64
"""Addresses of one IPv6 network count as one address, because every host may choose freely among them (RFC 4291
§2.5.1)."""

FORWARDED_MAX = 20
"""Addresses of `X-Forwarded-For` that are read, from the right: more proxies than stand in any chain."""


def networks_of(texts: Iterable[str]) -> list[Network]:
    """Return the networks of addresses or networks such as 10.0.0.7 and 10.0.0.0/8. Raises ValueError."""
    return [ipaddress.ip_network(each, strict=False) for each in texts]


def address_of(text: str) -> Address | None:
    """Return an address, an IPv4 address in an IPv6 one as the former; None for any other text."""
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
    """Return the unit of the address that a request came from; '' for a socket without addresses.

    If the connection is that of a proxy among `proxies`, the caller is the last address of `X-Forwarded-For` that is
    not a proxy's: each proxy appends the address that it sees, and addresses before that one may be forged.
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
