"""The servers that failovers are tested with, and a primary with its replica at an address that can move."""

import shutil
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from server.store.server_process import find_binary
from tests.failover.servers import Pair, gate, server


@pytest.fixture
def binary(request: pytest.FixtureRequest) -> Path:
    """The server that `threadcast serve` embeds; by `both_servers` also the oldest that must be enough."""
    if getattr(request, "param", "valkey") == "valkey":
        return find_binary()
    found = shutil.which("redis-server")
    if found is None:
        pytest.skip("redis-server (7.0 or newer) is not on the PATH")
    return Path(found)


@pytest.fixture
async def pair(binary: Path, tmp_path: Path) -> AsyncIterator[Pair]:
    with ExitStack() as stack:
        primary = stack.enter_context(server(binary, tmp_path / "primary"))
        replica = stack.enter_context(server(binary, tmp_path / "replica"))
        async with gate(primary.port) as link, gate(primary.port) as address:
            await anyio.to_thread.run_sync(replica.follow, link.port)
            yield Pair(primary, replica, link, address)
