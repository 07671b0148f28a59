"""A network connection between a browser and its server that a test can cut or silence.

A page opened at `Line.url` reaches the server through the proxy of the torture tests (`tests/torture/proxy.py`). The
proxy has its own event loop here, because browser tests are not coroutines.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.torture.proxy import Proxy

__all__ = ["Line", "opened_line"]

FOR_EVER_SECONDS = 3_600.0
"""Duration of a cut or a silence, longer than any test: the test ends both itself."""


class Line:
    """`url` is the server's address over this connection."""

    def __init__(self, portal: BlockingPortal, proxy: Proxy) -> None:
        self._portal = portal
        self._proxy = proxy
        self.url = f"http://127.0.0.1:{proxy.port}"

    def down(self) -> None:
        """Reset all connections, and refuse new ones."""
        self._portal.call(self._proxy.refuse, FOR_EVER_SECONDS)

    def silent(self) -> None:
        """Silence all connections without closing them, as when a laptop leaves the network. New connections work."""
        assert self._portal.call(self._proxy.swallow, FOR_EVER_SECONDS)

    def up(self) -> None:
        """Let everything through again; silenced connections are reset."""
        self._portal.call(self._proxy.heal)


@contextmanager
def opened_line(server_url: str) -> Iterator[Line]:
    """Open a connection to the server for a block."""
    proxy = Proxy("page > server", ("127.0.0.1", int(server_url.rpartition(":")[2])))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(proxy):
        yield Line(portal, proxy)
