"""A Cluster of real nodes on this machine, made with plain commands: started, broken, promoted, its slots moved.

It knows nothing of chats. Each node is a child with a directory of its own (`start_server`), so it ends with the tests;
all listen on loopback, on ports that keep free (`tests/ports.py`). Waiting is for what the nodes say, with a deadline.
"""

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis

from server.store.embedded import PERSISTENT
from server.store.server_process import ServerProcess, find_binary, start_server
from server.store.slots import SLOTS, slot_of
from tests.ports import free_ports

__all__ = ["BINARIES", "ClusterNode", "Nodes", "running_cluster", "wait_for"]

NODE_TIMEOUT_MS = 1_000
"""After this silence a node counts as failed; a replica is then promoted within about as much again."""

WAIT_SECONDS = 60.0
"""For the nodes to agree, on a busy machine: it takes 2 to 4 s."""

POLL_SECONDS = 0.02

BINARIES: dict[str, str | None] = {"valkey": str(find_binary()), "redis7": shutil.which("redis-server")}
"""The embedded server, and the oldest that must be enough where there is one."""


class ClusterNode:
    """One server of the Cluster. `is_alive` is about its process."""

    def __init__(self, binary: Path, directory: Path) -> None:
        self._binary = binary
        self._directory = directory
        self.port, self._bus_port = free_ports(2)
        self._client = redis.Redis(port=self.port, socket_timeout=2, protocol=2)
        self._client.response_callbacks.clear()
        self._process: ServerProcess | None = None
        self.start()
        self.id = self.ask("CLUSTER", "MYID").decode()

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> ServerProcess:
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Also once more after a kill, on the same directory and port: its name and its slots stand in `nodes.conf`."""
        arguments = {
            "port": self.port,
            "bind": "127.0.0.1",
            "cluster-enabled": "yes",
            "cluster-port": self._bus_port,
            "cluster-node-timeout": NODE_TIMEOUT_MS,
            "cluster-require-full-coverage": "no",  # a lost node is then no trouble of the others
            "cluster-allow-replica-migration": "no",
            "repl-diskless-sync-delay": 0,  # replicas are there at once
            "enable-debug-command": "local",
        }
        flat = [part for name, value in arguments.items() for part in (f"--{name}", str(value))]
        self._process = start_server(self._binary, self._directory, [*PERSISTENT, *flat])
        self._process.wait_ready_blocking()

    def cut_off(self, replica: "ClusterNode") -> None:
        """From here on nothing of what is written here reaches that replica, which does not know it."""
        replica.ask("CONFIG", "SET", "masterauth", "wrong")
        self.ask("CLIENT", "KILL", "TYPE", "replica")

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.process.signal(number)
        if number is signal.SIGKILL:
            wait_for(lambda: not self.process.is_alive)

    def stop(self) -> None:
        self._client.close()
        self.process.signal(signal.SIGCONT)  # a stopped one would not hear of its end
        self.process.stop_blocking()

    def ask(self, *command: str | int | bytes) -> Any:  # Any: a reply is what the command promises
        """The reply as the wire has it."""
        return self._client.execute_command(*command)  # type: ignore[no-untyped-call] # redis-py's

    def facts(self) -> dict[str, str]:
        """CLUSTER INFO; nothing while it does not answer."""
        with suppress(redis.RedisError):
            lines = self.ask("CLUSTER", "INFO").decode().splitlines()
            return dict(line.split(":", 1) for line in lines if ":" in line)
        return {}

    def meet(self, other: "ClusterNode") -> None:
        self.ask("CLUSTER", "MEET", "127.0.0.1", other.port, other._bus_port)

    def replicates(self, primary: "ClusterNode") -> bool:
        """Tell it to; False while it has not yet heard of that node."""
        with suppress(redis.ResponseError):
            self.ask("CLUSTER", "REPLICATE", primary.id)
            return True
        return False

    def ranges(self) -> list[tuple[int, int, int]]:
        """CLUSTER SLOTS: first, last, port of the primary."""
        return [(first, last, primary[1]) for first, last, primary, *_ in self.ask("CLUSTER", "SLOTS")]

    @property
    def role(self) -> str:
        """`master`, `slave` once it is in step with its primary, `joining` until then, "" while it does not answer."""
        with suppress(redis.RedisError):
            said = self.ask("ROLE")
            if said[0] == b"master":
                return "master"
            return "slave" if said[3] == b"connected" else "joining"
        return ""


class Nodes:
    """`primaries[i]` begins with a third of the slots, `replicas[i]` follows it (if there are replicas)."""

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
        """By what the first node that answers says."""
        for node in self.all:
            with suppress(redis.RedisError):
                for first, last, port in node.ranges():
                    if first <= slot_of(key) <= last:
                        return next(each for each in self.all if each.port == port)
        raise AssertionError(f"nobody has {key!r}")

    def wait_until_ok(self) -> None:
        """Every node that lives says that all is well, and replicas have caught up."""
        living = [node for node in self.all if node.process.is_alive]
        wait_for(lambda: all(node.facts().get("cluster_state") == "ok" for node in living))

    def move_slot(self, key: bytes, source: ClusterNode, target: ClusterNode) -> int:
        """Reshard one slot, key by key as operators' tools do, as slowly as if it held much. How many keys it had."""
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


def wait_for(look: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, "the nodes did not do it in time"
        time.sleep(POLL_SECONDS)


@contextmanager
def running_cluster(directory: Path, *, replicas: bool = False, binary: str = "valkey") -> Iterator[Nodes]:
    """Three primaries, a third of the slots each; with `replicas` one behind each of them."""
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
        wait_for(lambda: all(node.facts().get("cluster_known_nodes") == str(len(nodes)) for node in nodes))
        for follower, primary in zip(followers, primaries, strict=False):
            wait_for(lambda: follower.replicates(primary))  # noqa: B023 - awaited at once
        cluster = Nodes(primaries, followers)
        cluster.wait_until_ok()
        wait_for(lambda: all(follower.role == "slave" for follower in followers))
        yield cluster
    finally:
        for node in nodes:
            node.stop()
