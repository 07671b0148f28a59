"""Connects to one MCP server and reconnects after a loss, in one task (MCP-1, MCP-2, MCP-5).

The SDK's client must be entered and left in one task, so only `run` holds the client; callers pass a request with `ask`
and wait. The connection keeps the server's list of tools; the hub gives the tools their names for models. If the server
fails in any way, `run` continues, and every `ask` returns or raises.
"""

import math
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread
import structlog

from threadcast.base.boundary import pass_on
from threadcast.settings.mcp import Mcp
from threadcast.tools.mcp.base import McpUnavailable
from threadcast.tools.mcp.elicitation import AskingCall, Elicitations
from threadcast.tools.mcp.live import Live, Request, reason_of

if TYPE_CHECKING:
    import mcp
    import mcp_types
    from pydantic import BaseModel

__all__ = ["LIST_SECONDS", "McpConnection", "all_pages"]

_log = structlog.get_logger()
_T = TypeVar("_T")
_Entry = TypeVar("_Entry", bound="BaseModel")

CONNECT_SECONDS = 30.0
"""Seconds from the start of a server until its tools are listed: a launcher may have to install the server first."""

LIST_SECONDS = 15.0
"""Seconds for all pages of one list."""

RECONNECT_FIRST_SECONDS = 1.0
RECONNECT_MAX_SECONDS = 60.0
STEADY_SECONDS = 60.0
"""Seconds after which a connection counts as successful, so that the next back-off starts from the beginning."""

RETRY_WAIT_SECONDS = 10.0
"""Seconds that a call with an expired session waits for the new session."""

PAGES_MAX = 50
"""Maximum pages of one list."""

LIST_AGAIN_SECONDS = 1.0
"""Minimum seconds between two requests for the list of tools, for a server that announces changes without end."""

LIST_MAX_BYTES = 1_048_576
"""Maximum bytes of one list as JSON. A page is a message, so many pages could fill the memory."""


class McpConnection:
    """The connection to the server `name`; call `run` in its own task. `changed` is called whenever the server's offers
    may have changed. `user` is the name of the user as which the program runs; "" means Threadcast's own user."""

    def __init__(self, name: str, server: Mcp, changed: Callable[["McpConnection"], None], user: str = "") -> None:
        self.name = name
        self.server = server
        self.user = user if server.command else ""
        self.tools: tuple[mcp_types.Tool, ...] = ()
        self.elicitations = Elicitations(name)
        self._changed = changed
        self._error = ""
        self._wanted = anyio.Event()
        self._tried = anyio.Event()
        self._up = anyio.Event()
        self._live: Live | None = None

    def want(self) -> None:
        """Start connecting at the first request."""
        self._wanted.set()

    async def tried(self) -> None:
        """Wait until the first attempt has succeeded or failed."""
        await self._tried.wait()

    async def run(self) -> None:
        """Keep the connection until this method is cancelled. When it returns, the child process and its descendants
        have ended."""
        await self._wanted.wait()
        delay = RECONNECT_FIRST_SECONDS
        while True:
            began_at = anyio.current_time()
            try:
                why = await self._connected_once()
            except BaseException as wrong:  # boundary: a foreign server, through a foreign SDK
                pass_on(wrong)
                why = reason_of(wrong)
            if why is None:
                continue  # only the session had expired: connect again at once
            self._error = why
            self._tried.set()
            if anyio.current_time() - began_at >= STEADY_SECONDS:
                delay = RECONNECT_FIRST_SECONDS
            _log.warning("mcp.down", server=self.name, error=why, retry_seconds=delay, **self._user_fields())
            await anyio.sleep(delay * random.uniform(0.75, 1.25))
            delay = min(delay * 2, RECONNECT_MAX_SECONDS)

    async def ask(self, make: "Callable[[mcp.Client], Awaitable[_T]]", asking: AskingCall | None = None) -> _T:
        """Run `make` with the client in the connection's task and return its result. Cancelling this call cancels
        `make` and notifies the server. After an expired session `make` runs again in a new session, since the server
        did not process the first request. `asking` is the tool call that `make` carries out; the server may ask the
        people of its chat.

        Raises:
            McpUnavailable: the server is not connected, too many requests wait, or the connection was lost. Exceptions
            of `make` pass through.
        """
        outcomes: list[_T] = []

        async def keep(client: "mcp.Client") -> None:
            outcomes.append(await make(client))

        self.want()
        if await self._ask_once(keep, asking):
            return outcomes[0]
        with anyio.move_on_after(RETRY_WAIT_SECONDS):
            await self._up.wait()
        if await self._ask_once(keep, asking):
            return outcomes[0]
        raise McpUnavailable(f"The MCP server {self.name} ends every session as soon as it begins.")

    async def _ask_once(
        self, make: "Callable[[mcp.Client], Awaitable[None]]", asking: AskingCall | None = None
    ) -> bool:
        """Run a request once. Returns False when the session had expired."""
        live, name = self._live, self.name
        if live is None:
            raise McpUnavailable(f"The MCP server {name} is not connected{f': {self._error}' if self._error else ''}.")
        request = Request(make, asking)
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
                    self._go_down()  # then the second attempt waits for the next session
                return False
            raise request.error
        if not request.is_answered:
            raise McpUnavailable(f"The connection to the MCP server {name} was lost before it answered.")
        return True

    async def _connected_once(self) -> str | None:
        """Run one connection, clean up after it, and return the reason of its end."""
        live = Live()
        try:
            return await self._live_once(live)
        except BaseException as wrong:  # boundary: as in `run`
            pass_on(wrong)
            if live.over.is_set():  # return the server's action, not its consequence in the SDK
                return live.why
            raise
        finally:
            self._go_down()
            live.close()

    async def _live_once(self, live: Live) -> str | None:
        """Run one connection from start to end. Returns the reason why the connection ended, or None if only the
        session had expired."""
        await anyio.to_thread.run_sync(_import_sdk, abandon_on_cancel=True)
        import mcp
        import mcp_types

        from threadcast.tools.mcp.watch import watched_transport

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
                watched_transport(self.name, self.server, live.ended, live.refuse_session, live.end),
                message_handler=hear,
                elicitation_callback=self.elicitations.answer if self.server.elicitation else None,
                cache=None,  # we keep our own lists; the SDK's cache would hide changes that servers do not announce
                client_info=mcp_types.Implementation(name="threadcast", version="1"),
            ) as client:
                tools = await _all_tools(client, self.name, self.server.tools_max)
                connecting.deadline = math.inf
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(live.watch_end)
                    tasks.start_soon(live.serve, client)
                    tasks.start_soon(live.listen, client)
                    tasks.start_soon(self._follow_lists, client, live)
                    if self.server.url:
                        tasks.start_soon(live.probe)
                    self._go_up(live, tools)
                    await live.over.wait()
                    self._go_down()
                    tasks.cancel_scope.cancel()
        return f"no answer within {CONNECT_SECONDS:g} s" if connecting.cancelled_caught else live.why

    def _go_up(self, live: Live, tools: "tuple[mcp_types.Tool, ...]") -> None:
        self._live, self._error = live, ""
        self._offer(tools)
        _log.info("mcp.connected", server=self.name, tools=len(tools), **self._user_fields())
        self._up.set()
        self._tried.set()

    def _user_fields(self) -> dict[str, str]:
        return {"user": self.user} if self.user else {}

    def _go_down(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            self._up = anyio.Event()
            self._error = live.why or "the session had expired"
            live.close()
            self._offer(())

    def _offer(self, tools: "tuple[mcp_types.Tool, ...]") -> None:
        self.tools = tools
        self._changed(self)

    async def _follow_lists(self, client: "mcp.Client", live: Live) -> None:
        """List the tools again whenever the server announces a change, and whenever a probe is due."""
        while True:
            await live.changed.wait()
            live.changed = anyio.Event()
            try:
                with anyio.fail_after(LIST_SECONDS):
                    tools = await _all_tools(client, self.name, self.server.tools_max)
            except BaseException as wrong:  # boundary: as in `run`
                pass_on(wrong)
                live.end(None if live.is_expired(wrong) else reason_of(wrong))
                return
            self._offer(tools)
            await anyio.sleep(LIST_AGAIN_SECONDS)


async def _all_tools(client: "mcp.Client", server: str, most: int) -> "tuple[mcp_types.Tool, ...]":
    async def page(cursor: str | None) -> "tuple[list[mcp_types.Tool], str | None]":
        found = await client.list_tools(cursor=cursor)
        return found.tools, found.next_cursor

    tools, is_cut = ([], False) if client.server_capabilities.tools is None else await all_pages(page, most)
    if is_cut:
        _log.warning("mcp.too_many_tools", server=server, taken=len(tools))
    return tuple(tools)


async def all_pages(
    page: Callable[[str | None], Awaitable[tuple[list[_Entry], str | None]]], most: int
) -> tuple[list[_Entry], bool]:
    """Return the first `most` entries of a list, up to LIST_MAX_BYTES in all, and whether the list has more entries.
    `page` fetches the page at a cursor and returns the page with the cursor of the next page. The cursor None means the
    first page as an argument, and the end of the list as a result."""
    items: list[_Entry] = []
    cursor: str | None = None
    left_bytes = LIST_MAX_BYTES
    for _ in range(PAGES_MAX):
        found, cursor = await page(cursor)
        for item in found[: most + 1 - len(items)]:
            left_bytes -= len(item.model_dump_json())
            if left_bytes < 0:
                return items, True
            items.append(item)
        if cursor is None or len(items) > most:
            break
    return items[:most], cursor is not None or len(items) > most


def _import_sdk() -> None:
    """Import the SDK. Callers use a thread, because the import takes most of a second. Raises ImportError when the
    extra is missing."""
    import threadcast.tools.mcp.watch  # noqa: F401 (the import is the purpose)
