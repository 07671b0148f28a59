"""All MCP servers of one process: their tools by name, their resources and prompts, and how they are doing.

A `ToolSource`: the table of tools is asked at each step, so that tools appear and vanish with their servers. Lists of
resources and prompts are kept for five minutes, or until their server says that they changed. The one rule: two tools
that would have one name are both left out, and it is said which (MCP-2); a dead server takes only its own with it.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import anyio
import structlog

from protocol.errors import ToolFailed
from protocol.messages import JsonObject
from server.deadlines import Deadline
from server.foreign import pass_on
from server.tools.base import Tool
from server.tools.mcp.base import ServerSpec, ServerStanding
from server.tools.mcp.connection import Connection
from server.tools.mcp.content import prompt_attachment, resource_attachments
from server.tools.mcp.live import reason_of
from server.tools.mcp.tool import McpTool

if TYPE_CHECKING:
    import mcp

__all__ = ["McpHub"]

_log = structlog.get_logger()
_T = TypeVar("_T")

SETTLE_SECONDS = 5.0
"""How long a start, or a first question, waits for servers to connect; slower ones join when they are ready."""

LIST_LIFETIME_SECONDS = 300.0
"""MCP-5: resources and prompts are listed again after five minutes."""

LIST_SECONDS = 15.0
"""For all pages of one list."""

PAGES_MAX = 50
ITEMS_MAX = 1_000
"""Of one server's list; a server that has more shows its first thousand."""


class _Kept(NamedTuple):
    items: list[JsonObject]
    until: float


class McpHub:
    """`operated` puts a tool under the operator's table, and returns None for one that is switched off. Nothing is
    connected before `running` is entered."""

    def __init__(
        self, specs: Iterable[ServerSpec] = (), operated: Callable[[Tool], Tool | None] = lambda tool: tool
    ) -> None:
        self._connections = {spec.name: Connection(spec, self._changed) for spec in specs}
        self._operated = operated
        self._tools: dict[str, dict[str, Tool]] = {}
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._all: Mapping[str, Tool] = {}

    @property
    def names(self) -> list[str]:
        return list(self._connections)

    def tools(self) -> Mapping[str, Tool]:
        """The tools of all servers that are connected now, by the names that models see."""
        return self._all

    def standings(self) -> list[ServerStanding]:
        return [connection.standing for connection in self._connections.values()]

    @asynccontextmanager
    async def running(self, *, at_once: bool) -> AsyncGenerator[None]:
        """Connections are kept for as long as it is entered: made `at_once`, or each when first needed."""
        if not self._connections:
            yield
            return
        async with anyio.create_task_group() as tasks:
            for connection in self._connections.values():
                tasks.start_soon(connection.run)
            if at_once:
                await self.settled()
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    async def settled(self) -> None:
        """Have every server connected or tried once; waits for at most SETTLE_SECONDS."""
        for connection in self._connections.values():
            connection.want()
        with anyio.move_on_after(SETTLE_SECONDS):
            for connection in self._connections.values():
                await connection.tried()

    async def resources(self) -> tuple[list[JsonObject], list[JsonObject]]:
        """What can be attached, and the servers that could not be asked (MCP-3)."""
        return await self._lists("resources", _resources_of)

    async def prompts(self) -> tuple[list[JsonObject], list[JsonObject]]:
        """The prompts, and the servers that could not be asked (MCP-4)."""
        return await self._lists("prompts", _prompts_of)

    async def read_resource(self, server: str, uri: str) -> list[JsonObject]:
        """A resource as attachments with their content. Raises ToolFailed with a sentence."""
        result = await self._ask(server, f"resource {uri}", lambda client: client.read_resource(uri))
        return resource_attachments(server, uri, result)

    async def get_prompt(self, server: str, name: str, arguments: dict[str, str]) -> list[JsonObject]:
        """A prompt as attachments with their content. Raises ToolFailed with a sentence."""
        result = await self._ask(server, f"prompt {name}", lambda client: client.get_prompt(name, arguments))
        return prompt_attachment(server, name, result)

    async def _ask(self, server: str, what: str, make: "Callable[[mcp.Client], Awaitable[_T]]") -> _T:
        connection = self._connections.get(server)
        if connection is None:
            known = ", ".join(self._connections) or "none"
            raise ToolFailed(f"there is no MCP server {server!r}; configured: {known}")
        connection.want()
        seconds = connection.spec.timeout_seconds
        try:
            async with Deadline(seconds):
                await connection.tried()
                return await connection.ask(make)
        except ToolFailed:
            raise
        except TimeoutError:
            raise ToolFailed(f"the MCP server {server} did not answer within {seconds:g} s: {what}") from None
        except BaseException as wrong:  # boundary: a foreign server, through a foreign SDK
            pass_on(wrong)
            raise ToolFailed(f"the MCP server {server} gave no {what}: {reason_of(wrong)}") from wrong

    async def _lists(
        self, kind: str, fetch: "Callable[[mcp.Client], Awaitable[list[JsonObject]]]"
    ) -> tuple[list[JsonObject], list[JsonObject]]:
        await self.settled()
        found: dict[str, list[JsonObject]] = {}
        errors: dict[str, JsonObject] = {}

        async def one(name: str) -> None:
            try:
                found[name] = await self._list(name, kind, fetch)
            except ToolFailed as failure:
                errors[name] = {"server": name, "error": failure.message}

        async with anyio.create_task_group() as tasks:
            for name in self._connections:
                tasks.start_soon(one, name)
        items = [item for name in self._connections for item in found.get(name, [])]
        return items, [errors[name] for name in self._connections if name in errors]

    async def _list(
        self, server: str, kind: str, fetch: "Callable[[mcp.Client], Awaitable[list[JsonObject]]]"
    ) -> list[JsonObject]:
        kept = self._kept.get((server, kind))
        if kept is not None and kept.until > anyio.current_time():
            return kept.items
        with anyio.move_on_after(LIST_SECONDS):
            items = [{"server": server, **item} for item in await self._ask(server, f"list of {kind}", fetch)]
            self._kept[server, kind] = _Kept(items, anyio.current_time() + LIST_LIFETIME_SECONDS)
            return items
        raise ToolFailed(f"the MCP server {server} did not list its {kind} within {LIST_SECONDS:g} s")

    def _changed(self, connection: Connection) -> None:
        """A server came, went, or announced a change."""
        server = connection.spec.name
        self._kept.pop((server, "resources"), None)
        self._kept.pop((server, "prompts"), None)
        self._tools[server] = self._named(server, [McpTool(connection, offered) for offered in connection.tools])
        everything = [tool for name in self._connections for tool in self._tools.get(name, {}).values()]
        self._all = {tool.name: tool for tool in sorted(everything, key=lambda tool: tool.name)}

    def _named(self, server: str, offered: list[McpTool]) -> dict[str, Tool]:
        by_name: dict[str, list[McpTool]] = {}
        for tool in offered:
            by_name.setdefault(tool.name, []).append(tool)
        named: dict[str, Tool] = {}
        for name, same in by_name.items():
            if len(same) > 1:  # nobody could say which of them ran
                colliding = [tool.remote_name for tool in same]
                _log.warning("mcp.tools_left_out", server=server, name=name, tools=colliding)
                continue
            kept = self._operated(same[0])
            if kept is not None:
                named[name] = kept
        return named


async def _resources_of(client: "mcp.Client") -> list[JsonObject]:
    if client.server_capabilities.resources is None:
        return []
    items: list[JsonObject] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await client.list_resources(cursor=cursor)
        items += [
            {
                "uri": resource.uri,
                "name": resource.title or resource.name,
                "description": resource.description or "",
                "mime_type": resource.mime_type or "",
            }
            for resource in page.resources
        ]
        cursor = page.next_cursor
        if cursor is None or len(items) >= ITEMS_MAX:
            break
    return items[:ITEMS_MAX]


async def _prompts_of(client: "mcp.Client") -> list[JsonObject]:
    if client.server_capabilities.prompts is None:
        return []
    items: list[JsonObject] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await client.list_prompts(cursor=cursor)
        items += [
            {
                "name": prompt.name,
                "description": prompt.description or prompt.title or "",
                "arguments": [
                    {"name": wanted.name, "description": wanted.description or "", "required": bool(wanted.required)}
                    for wanted in prompt.arguments or ()
                ],
            }
            for prompt in page.prompts
        ]
        cursor = page.next_cursor
        if cursor is None or len(items) >= ITEMS_MAX:
            break
    return items[:ITEMS_MAX]
