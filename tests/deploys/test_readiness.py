"""`/readyz` of web processes and workers in every phase of their lives; `/livez` has the same answer throughout.

A process answers 503 with the reason while it starts, while the store is away and from the moment of SIGTERM; in
between it answers 200.
"""

import re
import signal
import sys
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.deploys.test_handover import TOOLS, call
from tests.ports import free_port
from tests.support.fleet import Fleet
from tests.support.reader import watching
from tests.support.server import DEADLINE_SECONDS, ROOT, ask

pytestmark = pytest.mark.anyio

SILENT_MCP = """
[mcp.silent]
command = {python!r}
args = ["-c", "import time; time.sleep(600)"]
"""
"""A tool server that never answers: a start waits some seconds for its tools."""


class Prober:
    """Asks one process for its readiness."""

    def __init__(self, client: httpx2.AsyncClient, url: str) -> None:
        self._client, self.url = client, url

    async def get(self, path: str) -> httpx2.Response | None:
        """Returns None while no process listens."""
        try:
            return await self._client.get(self.url + path)
        except httpx2.TransportError:
            return None

    async def until(self, status: str, *, passing: frozenset[str] = frozenset()) -> httpx2.Response:
        """Wait until `/readyz` has that status; before that it may have only statuses of `passing`."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                found = await self.get("/readyz")
                said = found.json()["status"] if found is not None else "nobody"
                if found is not None and said == status:
                    assert found.status_code == (200 if status == "ready" else 503)
                    live = await self.get("/livez")
                    assert live is None or (live.status_code, live.json()) == (200, {"status": "ok"})
                    return found
                assert said in passing, f"/readyz said {said} on its way to {status}"
                await anyio.sleep(0.01)


@pytest.fixture
async def client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=DEADLINE_SECONDS)


def test_what_containers_probe_is_what_processes_answer() -> None:
    compose = (ROOT / "compose.yaml").read_text()
    probed = re.findall(r"urlopen\('http://127\.0\.0\.1:(\d+)(/\w+)'", compose)
    assert probed == [("8000", "/readyz"), ("9100", "/readyz")]
    assert "THREADCAST_SERVER__METRICS_PORT: 9100" in compose


@pytest.mark.parametrize("kind", ["serve", "worker"])
async def test_while_it_starts_it_says_so_and_takes_nothing(
    fleet: Fleet, tmp_path: Path, client: httpx2.AsyncClient, kind: str
) -> None:
    config = tmp_path / "threadcast.toml"
    config.write_text(SILENT_MCP.format(python=sys.executable))
    port = free_port()
    where = ["--port", str(port)] if kind == "serve" else []
    process = fleet.start(kind, *where, "--config", str(config), metrics_port=port)
    async with client:
        prober = Prober(client, f"http://127.0.0.1:{port}")
        said = await prober.until("starting", passing=frozenset({"nobody"}))
        assert said.json()["detail"]
        if kind == "serve":
            body = {"type": "user_message", "client_request_id": "a", "content": "hello"}
            early = await client.post(f"{prober.url}/v1/chats/c1/commands", json=body)
            assert (early.status_code, early.json()["code"], early.headers["retry-after"]) == (503, "unavailable", "1")
        await prober.until("ready", passing=frozenset({"starting"}))
        assert b"threadcast_chats_active" in (await client.get(f"{prober.url}/metrics")).content
        assert await process.stop() == 0
        assert await prober.get("/readyz") is None


async def test_a_worker_whose_store_is_away_is_not_ready_and_lives(fleet: Fleet, client: httpx2.AsyncClient) -> None:
    port = free_port()
    process = await fleet.start("worker", metrics_port=port).ready()
    async with client:
        prober = Prober(client, f"http://127.0.0.1:{port}")
        await prober.until("ready", passing=frozenset({"starting"}))
        fleet.store.signal(signal.SIGSTOP)
        try:
            said = await prober.until("unavailable", passing=frozenset({"ready"}))
            assert "store" in said.json()["detail"]
        finally:
            fleet.store.signal(signal.SIGCONT)
        await prober.until("ready", passing=frozenset({"unavailable"}))
        assert await process.stop() == 0


async def test_a_worker_that_hands_its_chats_over_says_that_it_drains(fleet: Fleet, client: httpx2.AsyncClient) -> None:
    port = free_port()
    web = await fleet.add_web()
    worker = await fleet.start("worker", "--app", str(TOOLS), metrics_port=port).ready()
    async with client, watching(web.url, "c1") as chat:
        prober = Prober(client, f"http://127.0.0.1:{port}")
        await ask(web.url, "c1", call("safe", ticks=1_000), "demo/tools?rate=0")
        await chat.until(lambda w: "tool_status" in w.types())
        worker.send(signal.SIGTERM)
        said = await prober.until("draining", passing=frozenset({"ready"}))
        assert "elsewhere" in said.json()["detail"]
        assert await worker.ended() == 0
