"""The connections to the MCP servers of served agents. The first run that needs the connections opens them, and the
last run closes them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
from agents.mcp import MCPServer, MCPServerManager

from threadcast_protocol.wire.errors import ModelFailed

__all__ = ["Connections"]

CONNECT_SECONDS = 30.0
"""Maximum seconds to open all connections. The program of a server may have to be downloaded first."""

CLOSE_SECONDS = 5.0


class Connections:
    """The connections to `servers`, which are shared by several runs. Tasks of the SDK's manager own the connections,
    because a connection must be closed in the task that has opened it."""

    def __init__(self, servers: Sequence[MCPServer]) -> None:
        self._servers = list(servers)
        self._lock = asyncio.Lock()
        self._manager: MCPServerManager | None = None
        self._runs_count = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Keep the connections open during the block.

        Raises:
            ModelFailed: a server cannot be reached within 30 s.
        """
        if not self._servers:
            yield
            return
        async with self._lock:
            if self._manager is None:
                manager = MCPServerManager(
                    self._servers,
                    connect_timeout_seconds=CONNECT_SECONDS,
                    cleanup_timeout_seconds=CLOSE_SECONDS,
                    connect_in_parallel=True,
                )
                await manager.connect_all()
                if manager.failed_servers:
                    names = ", ".join(server.name for server in manager.failed_servers)
                    await manager.cleanup_all()
                    raise ModelFailed("connection", f"The agent cannot reach its MCP servers: {names}.")
                self._manager = manager
            self._runs_count += 1
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                async with self._lock:
                    self._runs_count -= 1
                    if self._runs_count == 0 and self._manager is not None:
                        manager, self._manager = self._manager, None
                        await manager.cleanup_all()
