"""A store and a worker, and what a web process beside them is told: for tests of many readers.

The web process is the test's own to start, so that its memory and its lives are the test's to measure.
"""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from server.store.embedded import VOLATILE
from server.store.server_process import ServerProcess
from tests.integration.harness import start
from tests.resources.measures import started_store

__all__ = ["house"]


@asynccontextmanager
async def house(tmp_path: Path, **limits: str) -> AsyncIterator[tuple[ExitStack, ServerProcess, dict[str, str]]]:
    with ExitStack() as stack:
        store = stack.enter_context(started_store(tmp_path / "store", tuple(VOLATILE)))
        named = {f"THREADCAST_LIMITS__{name.upper()}": value for name, value in limits.items()}
        environment = {"REDIS_URL": store.url, "THREADCAST_LIMITS__STREAMS_PER_PRINCIPAL": "5000", **named}
        worker = stack.enter_context(start("worker", log=tmp_path / "worker", environment=environment))
        await worker.ready()
        yield stack, store, environment
