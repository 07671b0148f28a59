"""One MCP server's connection: made, watched, lost and made again by one task (MCP-1, MCP-2, MCP-5).

The SDK's client must be entered and left in one task, so `run` is the only one that holds it; everybody else hands in
a request with `ask` and waits. It knows what the server offers, but not under which names models see it: that is the
hub's business. The one rule: whatever happens to the server, `run` goes on and every `ask` comes back.
"""

import math
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread
import structlog

from server.foreign import pass_on
from server.tools.mcp.base import McpUnavailable, ServerSpec, ServerStanding, Standing
from server.tools.mcp.live import Live, Request, reason_of

if TYPE_CHECKING:
    import mcp
    import mcp_types

__all__ = ["Connection"]

_log = structlog.get_logger()
_T = TypeVar("_T")

CONNECT_SECONDS = 30.0
"""From the start of a server until its tools are known: a launcher may have to install it first."""

LIST_SECONDS = 15.0
"""For all pages of one list."""

RECONNECT_FIRST_SECONDS = 1.0
RECONNECT_MAX_SECONDS = 60.0
STEADY_SECONDS = 60.0
"""A connection that held for so long was a good one: the next back-off begins anew."""

RETRY_WAIT_SECONDS = 10.0
"""How long a call whose session had expired waits for the new one."""

PAGES_MAX = 50
TOOLS_MAX = 500
"""Of one server; more are left out, and a log line says so. No model takes as many."""


class Connection:
    """`run` it in a task of its own. `changed` is called whenever what the server offers may have changed."""

    def __init__(self, spec: ServerSpec, changed: Callable[["Connection"], None]) -> None:
        self.spec = spec
        self.tools: tuple[mcp_types.Tool, ...] = ()
        self._changed = changed
        self._standing: Standing = "not asked yet"
        self._error = ""
        self._wanted = anyio.Event()
        self._tried = anyio.Event()
        self._up = anyio.Event()
        self._live: Live | None = None

    @property
    def standing(self) -> ServerStanding:
        return ServerStanding(self.spec.name, self._standing, self._error, len(self.tools))

    def want(self) -> None:
        """Connect, if that has not begun yet."""
        self._wanted.set()

    async def tried(self) -> None:
        """Wait until the first attempt has succeeded or failed."""
        await self._tried.wait()

    async def run(self) -> None:
        """Keep the connection until cancelled; then a child process has been ended, with all of its own."""
        await self._wanted.wait()
        delay = RECONNECT_FIRST_SECONDS
        while True:
            began_at = anyio.current_time()
            self._standing = "connecting"
            try:
                why = await self._connected_once()
            except BaseException as wrong:  # boundary: a foreign server, through a foreign SDK
                pass_on(wrong)
                why = reason_of(wrong)
            if why is None:
                continue  # only the session had expired: a new one, at once
            self._standing, self._error = "down", why
            self._tried.set()
            if anyio.current_time() - began_at >= STEADY_SECONDS:
                delay = RECONNECT_FIRST_SECONDS
            _log.warning("mcp.down", server=self.spec.name, error=why, retry_seconds=delay)
            await anyio.sleep(delay * random.uniform(0.75, 1.25))
            delay = min(delay * 2, RECONNECT_MAX_SECONDS)

    async def ask(self, make: "Callable[[mcp.Client], Awaitable[_T]]") -> _T:
        """What `make` returns, run beside the connection. Cancelling cancels it there too, and the server is told.
        An expired session is replaced, and `make` run once more: the server did not look at the first request.

        Raises:
            McpUnavailable: not connected, too much waits, or the connection was lost in the middle.
            Exception: whatever `make` raises.
        """
        outcomes: list[_T] = []

        async def keep(client: "mcp.Client") -> None:
            outcomes.append(await make(client))

        self.want()
        if await self._ask_once(keep):
            return outcomes[0]
        with anyio.move_on_after(RETRY_WAIT_SECONDS):
            await self._up.wait()
        if await self._ask_once(keep):
            return outcomes[0]
        raise McpUnavailable(f"The MCP server {self.spec.name} ends every session at once.")

    async def _ask_once(self, make: "Callable[[mcp.Client], Awaitable[None]]") -> bool:
        """False: the session had expired."""
        live, name = self._live, self.spec.name
        if live is None:
            raise McpUnavailable(f"The MCP server {name} is not connected{f': {self._error}' if self._error else ''}.")
        request = Request(make)
        try:
            live.submit(request)
        except anyio.WouldBlock:
            raise McpUnavailable(f"Too many requests wait for the MCP server {name}; try again later.") from None
        try:
            await request.done.wait()
        finally:
            request.scope.cancel()
        if request.error is not None:
            if live.is_expired(request.error):
                if self._live is live:
                    self._go_down()  # so that the second try waits for the next session
                return False
            raise request.error
        if not request.is_answered:
            raise McpUnavailable(f"The connection to the MCP server {name} was lost before it answered.")
        return True

    async def _connected_once(self) -> str | None:
        """Why the connection ended; whatever that was, nothing of it is left."""
        live = Live()
        try:
            return await self._live_once(live)
        finally:
            self._go_down()
            live.close()

    async def _live_once(self, live: Live) -> str | None:
        """One connection from beginning to end: why it ended, None when only its session had expired."""
        await anyio.to_thread.run_sync(_import_sdk, abandon_on_cancel=True)
        import mcp
        import mcp_types

        from server.tools.mcp.watch import watched_transport

        announcements = (
            mcp_types.ToolListChangedNotification,
            mcp_types.ResourceListChangedNotification,
            mcp_types.PromptListChangedNotification,
        )

        async def hear(message: object) -> None:
            if isinstance(message, announcements):
                live.changed.set()

        with anyio.CancelScope(deadline=anyio.current_time() + CONNECT_SECONDS) as connecting:
            async with mcp.Client(
                watched_transport(self.spec, live.ended, live.refuse_session),
                message_handler=hear,
                cache=None,  # we keep our own lists; the SDK's cache would hide changes of servers that say nothing
                client_info=mcp_types.Implementation(name="threadcast", version="1"),
            ) as client:
                tools = await _all_tools(client, self.spec.name)
                connecting.deadline = math.inf
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(live.watch_end)
                    tasks.start_soon(live.serve, client)
                    tasks.start_soon(live.listen, client)
                    tasks.start_soon(self._follow_lists, client, live)
                    if self.spec.url:
                        tasks.start_soon(live.probe)
                    self._go_up(live, tools)
                    await live.over.wait()
                    self._go_down()
                    tasks.cancel_scope.cancel()
        return f"no answer within {CONNECT_SECONDS:g} s" if connecting.cancelled_caught else live.why

    def _go_up(self, live: Live, tools: "tuple[mcp_types.Tool, ...]") -> None:
        self._live, self._standing, self._error = live, "connected", ""
        self._offer(tools)
        _log.info("mcp.connected", server=self.spec.name, tools=len(tools))
        self._up.set()
        self._tried.set()

    def _go_down(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            self._up = anyio.Event()
            self._standing, self._error = "down", live.why or "the session had expired"
            live.close()
            self._offer(())

    def _offer(self, tools: "tuple[mcp_types.Tool, ...]") -> None:
        self.tools = tools
        self._changed(self)

    async def _follow_lists(self, client: "mcp.Client", live: Live) -> None:
        """List again whenever the server says that something changed, and whenever a probe is due."""
        while True:
            await live.changed.wait()
            live.changed = anyio.Event()
            try:
                with anyio.fail_after(LIST_SECONDS):
                    tools = await _all_tools(client, self.spec.name)
            except BaseException as wrong:  # boundary: as in `run`
                pass_on(wrong)
                live.end(None if live.is_expired(wrong) else reason_of(wrong))
                return
            self._offer(tools)


async def _all_tools(client: "mcp.Client", server: str) -> "tuple[mcp_types.Tool, ...]":
    if client.server_capabilities.tools is None:
        return ()
    tools: list[mcp_types.Tool] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None or len(tools) > TOOLS_MAX:
            break
    if len(tools) > TOOLS_MAX or cursor is not None:
        _log.warning("mcp.too_many_tools", server=server, taken=min(len(tools), TOOLS_MAX))
    return tuple(tools[:TOOLS_MAX])


def _import_sdk() -> None:
    """In a thread: it takes most of a second. Raises ImportError where the extra is missing."""
    import server.tools.mcp.watch  # noqa: F401 (the import is the purpose)
