"""Which node of a Cluster serves which slot, as one node says it: addresses, the map, and how old a view is.

Pure: it reads the replies of CLUSTER INFO and CLUSTER SLOTS and asks nobody; `cluster.py` does. The rule: of several
views the one with the highest epoch counts, since a node that was away still believes what it knew.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from redis.crc import key_slot

from server.store.connection import Reply

__all__ = ["SLOTS", "NodeName", "View", "parse_view", "slot_of"]

SLOTS = 16_384
"""Of every Cluster (the specification's number)."""

NodeName: TypeAlias = str
"""`host:port`; an IPv6 host in brackets."""


def slot_of(key: bytes) -> int:
    """CRC16 of the hash tag, modulo 16,384."""
    return key_slot(key)


class View(msgspec.Struct, frozen=True):
    """What one node believes. `owners` holds the address of each served slot's primary."""

    is_ok: bool
    epoch: int
    owners: dict[int, NodeName]
    others: tuple[NodeName, ...]
    """Replicas: they can be asked too, when the primaries are gone."""

    @property
    def primaries(self) -> tuple[NodeName, ...]:
        return tuple(dict.fromkeys(self.owners.values()))

    def beats(self, other: "View") -> bool:
        """Whether this one is to be believed rather than the other."""
        return (self.is_ok, self.epoch, len(self.owners)) > (other.is_ok, other.epoch, len(other.owners))


def parse_view(info: bytes, ranges: Reply, asked: NodeName) -> View:
    """From the replies of CLUSTER INFO and CLUSTER SLOTS. A node that does not know its own name is the one asked."""
    facts = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    owners: dict[int, NodeName] = {}
    others: dict[NodeName, None] = {}
    for first, last, primary, *replicas in ranges:
        address = _address(primary, asked)
        for slot in range(int(first), int(last) + 1):
            owners[slot] = address
        for replica in replicas:
            others[_address(replica, asked)] = None
    return View(
        is_ok=facts.get("cluster_state") == "ok",
        epoch=int(facts.get("cluster_current_epoch", 0)),
        owners=owners,
        others=tuple(others),
    )


def _address(node: Sequence[Reply], asked: NodeName) -> NodeName:
    host = node[0].decode() if node[0] else ""
    return at(host, int(node[1]), asked)


def at(host: str, port: int, asked: NodeName) -> NodeName:
    """An empty host, or `?`, is how Redis says: the same as the one you asked."""
    if host in ("", "?"):
        host = asked.rpartition(":")[0]
    elif ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"{host}:{port}"
