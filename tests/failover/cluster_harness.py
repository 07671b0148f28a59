"""The product over a Cluster, and new chats on the nodes that a test names."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import anyio
import httpx2

from tests.support.cluster import ClusterNode, Nodes
from tests.support.fleet import running_fleet
from tests.support.server import command
from threadcast.store.redis.keys import Keys
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["ClusterHarness", "cluster_harness"]

FAST = {"LEASE_SECONDS": "1.5", "BEAT_SECONDS": "0.4", "SWEEP_SECONDS": "0.2"}
"""A lease shorter than the default, so that a takeover takes little time; moving a slot must not lose the lease."""

TOOLS = Path(__file__).parents[1] / "integration/preview_tools.py"


class ClusterHarness:
    """A web process and two workers over a Cluster, and the ids of chats on its nodes."""

    def __init__(self, nodes: Nodes, url: str) -> None:
        self.nodes = nodes
        self.url = url

    def chats(self, node: ClusterNode, number: int, name: str = "c") -> list[str]:
        """Return ids of new chats that this node serves."""
        keys = Keys(16)
        found: list[str] = []
        for n in count():
            chat_id = f"{name}-{node.port}-{n}"
            if self.nodes.owner_of(keys.chat(chat_id).log) is node:
                found.append(chat_id)
            if len(found) == number:
                return found
        raise AssertionError

    async def post(self, chat_id: str, body: JsonObject, seconds: float = 30.0) -> None:
        """Post the same command again while the answer is 503, as a client does."""
        with anyio.fail_after(seconds):
            while (answer := await command(self.url, chat_id, body)).status_code == 503:
                await anyio.sleep(0.2)
        assert answer.status_code in (200, 202), answer.text

    async def readiness(self) -> tuple[int, JsonObject]:
        async with httpx2.AsyncClient(timeout=10) as client:
            answer = await client.get(f"{self.url}/readyz")
        return answer.status_code, answer.json()


@contextmanager
def cluster_harness(nodes: Nodes, directory: Path) -> Iterator[ClusterHarness]:
    with running_fleet(directory, nodes.url, "--app", str(TOOLS), limits=FAST) as fleet:
        anyio.run(fleet.open)
        yield ClusterHarness(nodes, fleet.url)
