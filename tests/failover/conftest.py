"""A primary and its replica, of the kind of server that a test names, behind an address that a test can move to the
replica."""

from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from tests.failover.gates import Pair, gate
from tests.ports import free_port
from tests.support.store import BINARIES, running_store

QUICK = (
    *("--save", "", "--appendonly", "no"),
    *("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"),
)
"""Options of both servers: no persistence, and a replica that synchronizes at once."""


@pytest.fixture
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """A primary and its replica: servers of the embedded kind, or of the kind that the parameter names."""
    program = BINARIES[getattr(request, "param", "valkey")]
    if program is None:
        pytest.skip("redis-server (7.0 or newer) is not on the PATH")
    with ExitStack() as stack:
        primary, replica = (
            stack.enter_context(running_store(tmp_path / name, QUICK, binary=Path(program), port=free_port()))
            for name in ("primary", "replica")
        )
        async with gate(primary.port) as link, gate(primary.port) as address:
            await anyio.to_thread.run_sync(replica.follow, link.port)
            yield Pair(primary, replica, link, address)
