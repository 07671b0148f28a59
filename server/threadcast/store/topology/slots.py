"""Parses one node's view of a Cluster: addresses, the slot map, and the epoch of the view.

These pure functions parse the replies of CLUSTER INFO and CLUSTER SLOTS, which `cluster_view.py` requests. If views
differ, the view with the highest epoch is used, because a node that was cut off still has its old view.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from redis.crc import key_slot

from threadcast.store.redis.connection import Reply

__all__ = ["SLOTS", "NodeName", "View", "parse_view", "slot_of"]

SLOTS = 16_384
"""The number of slots of every Cluster (from its specification)."""

NodeName: TypeAlias = str
"""`host:port`; an IPv6 host in brackets."""


def slot_of(key: bytes) -> int:
    """Return the slot of a key: CRC16 of its hash tag, modulo 16,384."""
    return key_slot(key)


class View(msgspec.Struct, frozen=True):
    """The view of one node. `owners` maps each served slot to the address of its primary."""

    is_ok: bool
    epoch: int
    owners: dict[int, NodeName]
    others: tuple[NodeName, ...]
    """The addresses of the replicas, which can answer when no primary answers."""

    @property
    def primaries(self) -> tuple[NodeName, ...]:
        return tuple(dict.fromkeys(self.owners.values()))

    def beats(self, other: "View") -> bool:
        """Return whether this view takes precedence over `other`: complete views come first, then views with a higher
        epoch, then views with more served slots."""
        return (self.is_ok, self.epoch, len(self.owners)) > (other.is_ok, other.epoch, len(other.owners))


def parse_view(info: bytes, ranges: Reply, asked: NodeName) -> View:
    """Parse the replies of CLUSTER INFO and CLUSTER SLOTS. A node without a name in the reply is the node that was
    asked."""
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
    """Return the node's name. An empty host, or `?`, is Redis's notation for the node that was asked."""
    if host in ("", "?"):
        host = asked.rpartition(":")[0]
    elif ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"{host}:{port}"
