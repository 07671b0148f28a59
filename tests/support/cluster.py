"""Builds a Cluster of real servers on loopback by plain commands; tests kill and promote its nodes and move their
slots.

Tests wait, with a deadline, for the nodes' own reports.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import redis

from tests.ports import free_ports
from tests.support.store import BINARIES, POLL_SECONDS, StoreServer, wait_until
from threadcast.store.embedded.embedded import PERSISTENT
from threadcast.store.topology.slots import SLOTS, slot_of

__all__ = ["ClusterNode", "Nodes", "running_cluster"]

NODE_TIMEOUT_MS = 1_000
"""After this silence a node counts as failed; a replica is then promoted within about the same time."""


class ClusterNode(StoreServer):
    """One server of the Cluster. `ask` returns replies undecoded, as on the wire."""

    def __init__(self, binary: Path, directory: Path) -> None:
        port, self._bus_port = free_ports(2)
        options = {
            "cluster-enabled": "yes",
            "cluster-port": self._bus_port,
            "cluster-node-timeout": NODE_TIMEOUT_MS,
            "cluster-require-full-coverage": "no",  # then the other nodes continue if one node is lost
            "cluster-allow-replica-migration": "no",
            "repl-diskless-sync-delay": 0,  # replicas get their data at once
            "enable-debug-command": "local",
        }
        flat = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        super().__init__(directory, [*PERSISTENT, *flat], binary=binary, port=port)
        self.client.response_callbacks.clear()
        self.id = self.ask("CLUSTER", "MYID").decode()

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut_off(self, replica: "ClusterNode") -> None:
        """Stop replication to that replica: later writes do not reach the replica, and the replica does not notice."""
        replica.ask("CONFIG", "SET", "masterauth", "wrong")
        self.ask("CLIENT", "KILL", "TYPE", "replica")

    def facts(self) -> dict[str, str]:
        """Return CLUSTER INFO, or {} while the node does not answer."""
        with suppress(redis.RedisError):
            lines = self.ask("CLUSTER", "INFO").decode().splitlines()
            return dict(line.split(":", 1) for line in lines if ":" in line)
        return {}

    def meet(self, other: "ClusterNode") -> None:
        self.ask("CLUSTER", "MEET", "127.0.0.1", other.port, other._bus_port)

    def replicates(self, primary: "ClusterNode") -> bool:
        """Make this node a replica of that node. Returns False while this node does not know the other node yet."""
        with suppress(redis.ResponseError):
            self.ask("CLUSTER", "REPLICATE", primary.id)
            return True
        return False

    def ranges(self) -> list[tuple[int, int, int]]:
        """Return CLUSTER SLOTS: first slot, last slot, port of the primary."""
        return [(first, last, primary[1]) for first, last, primary, *_ in self.ask("CLUSTER", "SLOTS")]

    @property
    def role(self) -> str:
        """Return `master`, `slave` (a replica that has all data), `joining` (a replica that still copies data) or ""
        (no answer)."""
        with suppress(redis.RedisError):
            said = self.ask("ROLE")
            if said[0] == b"master":
                return "master"
            return "slave" if said[3] == b"connected" else "joining"
        return ""


class Nodes:
    """The nodes of one Cluster. Each of the three `primaries` begins with a third of the slots. If the Cluster has
    replicas, `replicas[i]` replicates `primaries[i]`."""

    def __init__(self, primaries: Sequence[ClusterNode], replicas: Sequence[ClusterNode]) -> None:
        self.primaries = list(primaries)
        self.replicas = list(replicas)

    @property
    def all(self) -> list[ClusterNode]:
        return [*self.primaries, *self.replicas]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(node.name for node in self.primaries)

    def flush(self) -> None:
        for node in self.primaries:
            node.ask("FLUSHALL")

    def owner_of(self, key: bytes) -> ClusterNode:
        """Return the primary of the key's slot, as the first node that answers reports it."""
        for node in self.all:
            with suppress(redis.RedisError):
                for first, last, port in node.ranges():
                    if first <= slot_of(key) <= last:
                        return next(each for each in self.all if each.port == port)
        raise AssertionError(f"no node serves {key!r}")

    def wait_until_ok(self) -> None:
        """Wait until every running node reports that the Cluster is well."""
        living = [node for node in self.all if node.process.is_alive]
        wait_until(lambda: all(node.facts().get("cluster_state") == "ok" for node in living), "the Cluster is well")

    def move_slot(self, key: bytes, source: ClusterNode, target: ClusterNode) -> int:
        """Move one slot to another node, key by key as operators' tools do, and as slowly as if it held much data.

        Returns the number of keys in the slot.
        """
        slot = slot_of(key)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        moved = 0
        while names := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
            source.ask("MIGRATE", "127.0.0.1", target.port, names[0], 0, 5_000)
            moved += 1
            time.sleep(POLL_SECONDS)
        for node in (target, source, *(each for each in self.primaries if each not in (source, target))):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        return moved


def _knows(node: ClusterNode, count: int) -> bool:
    return node.facts().get("cluster_known_nodes") == str(count)


@contextmanager
def running_cluster(directory: Path, *, replicas: bool = False, binary: str = "valkey") -> Iterator[Nodes]:
    """Run three primaries with a third of the slots each; with `replicas`, each primary also has one replica."""
    program = BINARIES[binary]
    assert program is not None
    nodes = [ClusterNode(Path(program), directory / f"node-{n}") for n in range(6 if replicas else 3)]
    try:
        primaries, followers = nodes[:3], nodes[3:]
        bounds = [SLOTS * n // 3 for n in range(4)]
        for n, node in enumerate(nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", n + 1)
            if n < 3:
                node.ask("CLUSTER", "ADDSLOTSRANGE", bounds[n], bounds[n + 1] - 1)
            if n:
                node.meet(nodes[0])
        wait_until(lambda: all(_knows(node, len(nodes)) for node in nodes), "the nodes know each other")
        for follower, primary in zip(followers, primaries, strict=False):
            wait_until(lambda: follower.replicates(primary), "it replicates")  # noqa: B023 - awaited at once
        cluster = Nodes(primaries, followers)
        cluster.wait_until_ok()
        wait_until(lambda: all(follower.role == "slave" for follower in followers), "replicas are in step")
        yield cluster
    finally:
        for node in nodes:
            node.close()
