"""The network between a browser and its server, with a lid that can be closed.

A page opened at `Line.url` reaches the server through a proxy of the torture (`tests/torture/proxy.py`), which here has
an event loop of its own, since tests of the browser are plain functions.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.torture.proxy import Proxy

__all__ = ["Line", "opened_line"]

FOR_EVER_SECONDS = 3_600.0
"""Until the test says otherwise."""


class Line:
    """`url`: the server, over this line."""

    def __init__(self, portal: BlockingPortal, proxy: Proxy) -> None:
        self._portal = portal
        self._proxy = proxy
        self.url = f"http://127.0.0.1:{proxy.port}"

    def down(self) -> None:
        """Nobody gets through: what stood is reset, what is new is refused."""
        self._portal.call(self._proxy.refuse, FOR_EVER_SECONDS)

    def silent(self) -> None:
        """What stands stays and carries nothing more, and neither side is told: a laptop that was carried away. What is
        new works."""
        assert self._portal.call(self._proxy.swallow, FOR_EVER_SECONDS)

    def up(self) -> None:
        """All is well again; silenced connections are reset."""
        self._portal.call(self._proxy.heal)


@contextmanager
def opened_line(server_url: str) -> Iterator[Line]:
    """A line to the server, for a block."""
    proxy = Proxy("page > server", ("127.0.0.1", int(server_url.rpartition(":")[2])))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(proxy):
        yield Line(portal, proxy)
