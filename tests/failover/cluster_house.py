"""A web process and two workers over a Cluster, as real processes, and chats that lie where a test wants them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import anyio
import httpx2

from protocol.messages import JsonObject
from server.store.keys import Keys
from tests.failover.cluster_nodes import ClusterNode, Nodes
from tests.integration.harness import Process, command, start

__all__ = ["ClusterHouse", "cluster_house"]

FAST = {
    "THREADCAST_LIMITS__LEASE_SECONDS": "1.5",
    "THREADCAST_LIMITS__BEAT_SECONDS": "0.4",
    "THREADCAST_LIMITS__SWEEP_SECONDS": "0.2",
}
"""A shorter lease than the real one, so that a test is over soon."""

TOOLS = Path(__file__).parents[1] / "integration/preview_tools.py"


class ClusterHouse:
    def __init__(self, nodes: Nodes, web: Process, workers: list[Process]) -> None:
        self.nodes = nodes
        self.web = web
        self.workers = workers

    @property
    def url(self) -> str:
        return self.web.url

    def chats(self, node: ClusterNode, number: int, name: str = "c") -> list[str]:
        """Ids of new chats that this node serves."""
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
        """As a client does: the same command again while the answer is 503."""
        with anyio.fail_after(seconds):
            while (answer := await command(self.url, chat_id, body)).status_code == 503:
                await anyio.sleep(0.2)
        assert answer.status_code in (200, 202), answer.text

    async def readiness(self) -> tuple[int, JsonObject]:
        async with httpx2.AsyncClient(timeout=10) as client:
            answer = await client.get(f"{self.url}/readyz")
        return answer.status_code, answer.json()


@contextmanager
def cluster_house(nodes: Nodes, directory: Path) -> Iterator[ClusterHouse]:
    environment = {"REDIS_URL": nodes.url, **FAST}
    shared = ["--app", str(TOOLS)]
    with ExitStack() as stack:
        web = stack.enter_context(
            start("web", "--port", "0", *shared, log=directory / "web.log", environment=environment)
        )
        workers = [
            stack.enter_context(start("worker", *shared, log=directory / f"worker-{n}.log", environment=environment))
            for n in range(2)
        ]
        for process in (web, *workers):
            anyio.run(process.ready)
        yield ClusterHouse(nodes, web, workers)
