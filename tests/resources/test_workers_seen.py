"""`doctor` and a metric of web processes show commands that no worker takes up."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
import redis

from tests.integration.store_fixtures import CHAT, command
from tests.resources.measures import DEADLINE_SECONDS
from tests.support.cluster import running_cluster
from tests.support.server import run_command, start
from tests.support.store import StoreServer, running_store
from threadcast.base.telemetry import Metrics
from threadcast.http.readiness import Readiness
from threadcast.process.backlog import watched_backlog
from threadcast.store.redis.store import RedisStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreServer]:
    with running_store(tmp_path / "store") as server:
        yield server


def workers_line(store: StoreServer, directory: Path, port: str) -> str:
    """Return the line about workers that `doctor` prints."""
    said = run_command("doctor", directory=directory, store_url=store.url, port=port)
    (line,) = [line for line in said.splitlines() if " workers " in line]
    return " ".join(line.split())


async def test_doctor_sees_that_no_worker_is_there(store: StoreServer, tmp_path: Path) -> None:
    environment = {"REDIS_URL": store.url}
    assert workers_line(store, tmp_path, "0").startswith("note workers this store has no worker; start one")
    with start("web", "--port", "0", log=tmp_path / "web", environment=environment) as web:
        port = (await web.ready()).url.rpartition(":")[2]
        missing = workers_line(store, tmp_path, port)
        assert missing == "fail workers this store has no worker; start one: threadcast worker"
        with start("worker", log=tmp_path / "worker", environment=environment) as worker:
            await worker.ready()
            assert workers_line(store, tmp_path, port) == "ok workers 1 using this store"


async def test_the_oldest_chat_that_waits_is_measured_whatever_rests(store: StoreServer) -> None:
    metrics = Metrics()

    def measured() -> float:
        return metrics.registry.get_sample_value("threadcast_oldest_due_seconds") or 0.0

    async with RedisStore(store.url) as opened:
        assert await opened.oldest_due_seconds() == 0.0
        await opened.post(command("1"))
        with redis.Redis.from_url(store.url) as client:
            due = opened._keys.due(opened.bucket_of(CHAT))
            posted_ms = client.zscore(due, CHAT)
            assert isinstance(posted_ms, float)
            client.zadd(due, {CHAT: posted_ms - 60_000})
        async with watched_backlog(opened, metrics, Readiness()):
            with anyio.fail_after(DEADLINE_SECONDS):
                while measured() < 60:
                    await anyio.sleep(0.01)
        await opened.claim(opened.bucket_of(CHAT), "w1", 1, 30_000)
        assert await opened.oldest_due_seconds() == 0.0


async def test_workers_of_a_cluster_are_seen_on_whichever_node_they_listen(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as nodes:
        async with RedisStore(nodes.url) as opened:
            assert (await opened.workers_count(), await opened.oldest_due_seconds()) == (0, 0.0)
            async with opened.inbox_signals("w1"), opened.inbox_signals("w2"):
                assert await opened.workers_count() == 2
