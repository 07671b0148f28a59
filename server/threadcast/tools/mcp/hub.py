"""Manages all MCP servers of one process: their tools by name, their resources and their prompts.

The hub is a `ToolSource`: each step of a run asks the hub for the present tools, so that tools appear and disappear
with their servers. Lists of resources and prompts are kept for five minutes, or until their server announces a change.
Two tools with the same name are both left out and logged (MCP-2); the failure of one server affects only its own tools.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import anyio
import msgspec
import structlog

from threadcast.base.boundary import pass_on
from threadcast.base.deadlines import Deadline
from threadcast.settings.mcp import Mcp
from threadcast.tools.base import DEFAULT_TIMEOUT_SECONDS, Tool
from threadcast.tools.mcp.access import Kind, check_characters, has_control_characters, may_list
from threadcast.tools.mcp.connection import LIST_SECONDS, McpConnection, all_pages
from threadcast.tools.mcp.content import prompt_attachment, resource_attachments
from threadcast.tools.mcp.live import reason_of
from threadcast.tools.mcp.tool import McpTool
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.server_info import McpFailure, McpPrompt, McpResource

if TYPE_CHECKING:
    import mcp
    import mcp_types

__all__ = ["McpHub"]

_log = structlog.get_logger()
_T = TypeVar("_T")

SETTLE_SECONDS = 5.0
"""Seconds that a start, or a first request, waits for servers to connect; slower servers join when they are ready."""

LIST_LIFETIME_SECONDS = 300.0
"""Seconds after which resources and prompts are listed again (MCP-5)."""

ITEMS_MAX = 1_000
"""Maximum entries of one server's list; further entries are left out."""


class _Kept(NamedTuple):
    items: list[JsonObject]
    until: float


class McpHub:
    """Manages the connections to all `servers`, which maps names to settings. `operated` applies the operator's
    settings to a tool and returns None for a disabled tool. `default_timeout_seconds` applies to servers without a
    timeout. `has_tokens`: callers have tokens, so that resources and prompts are off unless the operator allows them.
    `user`: the name of the user as which programs of servers run; "" means Threadcast's own user. No connection is made
    before `running` is entered."""

    def __init__(
        self,
        servers: Mapping[str, Mcp] = MappingProxyType({}),
        operated: Callable[[Tool], Tool | None] = lambda tool: tool,
        default_timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        *,
        has_tokens: bool = False,
        user: str = "",
    ) -> None:
        self._connections = {name: McpConnection(name, server, self._changed, user) for name, server in servers.items()}
        self._operated = operated
        self._default_timeout_seconds = default_timeout_seconds
        self._has_tokens = has_tokens
        self._tools: dict[str, dict[str, Tool]] = {}
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._all: Mapping[str, Tool] = {}

    @property
    def names(self) -> list[str]:
        return list(self._connections)

    def tools(self) -> Mapping[str, Tool]:
        """Return the tools of all connected servers, by the names that models see."""
        return self._all

    @asynccontextmanager
    async def running(self, *, at_once: bool) -> AsyncGenerator[None]:
        """Keep the connections while the block runs. With `at_once` all connections are opened at the start of the
        block, otherwise each at its first use."""
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
        """Wait until every server has connected or failed once, for at most SETTLE_SECONDS."""
        for connection in self._connections.values():
            connection.want()
        with anyio.move_on_after(SETTLE_SECONDS):
            for connection in self._connections.values():
                await connection.tried()

    async def resources(self, roles: Collection[str]) -> tuple[list[McpResource], list[McpFailure]]:
        """Return the resources that a caller with `roles` may attach, and the errors of servers that did not answer
        (MCP-3). If the caller may not attach a server's resources, the server appears in neither list."""
        found, errors = await self._lists("resources", roles, _resources_of)
        return msgspec.convert(found, list[McpResource]), errors

    async def prompts(self, roles: Collection[str]) -> tuple[list[McpPrompt], list[McpFailure]]:
        """Return the prompts that a caller with `roles` may attach, and the errors of servers that did not answer
        (MCP-4)."""
        found, errors = await self._lists("prompts", roles, _prompts_of)
        return msgspec.convert(found, list[McpPrompt]), errors

    async def read_resource(self, server: str, uri: str, roles: Collection[str]) -> list[JsonObject]:
        """Return a resource as attachments with their content. Raises ToolFailed with a sentence, also if a caller with
        `roles` may not attach it."""
        await self._check(server, "resources", "uri", uri, roles, _resources_of)
        result = await self._ask(server, f"resource {uri}", lambda client: client.read_resource(uri))
        return resource_attachments(server, uri, result)

    async def get_prompt(
        self, server: str, name: str, arguments: dict[str, str], roles: Collection[str]
    ) -> list[JsonObject]:
        """Return a prompt as attachments with their content. Raises ToolFailed with a sentence, also if a caller with
        `roles` may not attach it."""
        await self._check(server, "prompts", "name", name, roles, _prompts_of)
        result = await self._ask(server, f"prompt {name}", lambda client: client.get_prompt(name, arguments))
        return prompt_attachment(server, name, result)

    def _may_list(self, server: str, kind: Kind, roles: Collection[str]) -> bool:
        return may_list(self._connections[server].server, kind, roles, has_tokens=self._has_tokens)

    async def _check(
        self,
        server: str,
        kind: Kind,
        key: str,
        wanted: str,
        roles: Collection[str],
        fetch: "Callable[[mcp.Client], Awaitable[list[JsonObject]]]",
    ) -> None:
        """Raise ToolFailed unless a caller with `roles` may attach the item whose field `key` equals `wanted`. The
        answer is the same for an unknown server, so that callers learn nothing about servers that they may not use."""
        if server not in self._connections or not self._may_list(server, kind, roles):
            raise ToolFailed(
                f"there is no MCP server {server!r} whose {kind} you may attach; GET /v1/mcp/{kind} lists those that "
                f"you may. The operator allows more by mcp.NAME.{kind} and mcp.NAME.attach_role"
            )
        check_characters(kind, wanted)
        if self._connections[server].server.attachable(kind, has_tokens=self._has_tokens) == "any":
            return
        if not any(item[key] == wanted for item in await self._list(server, kind, fetch)):
            raise ToolFailed(
                f"the MCP server {server} does not list {wanted!r} among its {kind}; choose one of GET /v1/mcp/{kind}. "
                f'The operator may set mcp.{server}.{kind} = "any"'
            )

    async def _ask(self, server: str, what: str, make: "Callable[[mcp.Client], Awaitable[_T]]") -> _T:
        connection = self._connections[server]
        connection.want()
        seconds = self._timeout_seconds(connection)
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
        self, kind: Kind, roles: Collection[str], fetch: "Callable[[mcp.Client], Awaitable[list[JsonObject]]]"
    ) -> tuple[list[JsonObject], list[McpFailure]]:
        names = [name for name in self._connections if self._may_list(name, kind, roles)]
        if not names:
            return [], []
        await self.settled()
        found: dict[str, list[JsonObject]] = {}
        errors: dict[str, McpFailure] = {}

        async def one(name: str) -> None:
            try:
                found[name] = await self._list(name, kind, fetch)
            except ToolFailed as failure:
                errors[name] = McpFailure(name, failure.message)

        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(one, name)
        items = [item for name in names for item in found.get(name, [])]
        return items, [errors[name] for name in names if name in errors]

    async def _list(
        self, server: str, kind: Kind, fetch: "Callable[[mcp.Client], Awaitable[list[JsonObject]]]"
    ) -> list[JsonObject]:
        kept = self._kept.get((server, kind))
        if kept is not None and kept.until > anyio.current_time():
            return kept.items
        with anyio.move_on_after(LIST_SECONDS):
            items = [{"server": server, **item} for item in await self._ask(server, f"list of {kind}", fetch)]
            self._kept[server, kind] = _Kept(items, anyio.current_time() + LIST_LIFETIME_SECONDS)
            return items
        raise ToolFailed(f"the MCP server {server} did not list its {kind} within {LIST_SECONDS:g} s")

    def _timeout_seconds(self, connection: McpConnection) -> float:
        return connection.server.timeout_seconds or self._default_timeout_seconds

    def _changed(self, connection: McpConnection) -> None:
        """Handle a server that connected, disconnected, or announced a change."""
        server = connection.name
        self._kept.pop((server, "resources"), None)
        self._kept.pop((server, "prompts"), None)
        seconds = self._timeout_seconds(connection)
        self._tools[server] = self._named(
            server, [McpTool(connection, offered, seconds) for offered in connection.tools]
        )
        everything = [tool for name in self._connections for tool in self._tools.get(name, {}).values()]
        self._all = {tool.name: tool for tool in sorted(everything, key=lambda tool: tool.name)}

    def _named(self, server: str, offered: list[McpTool]) -> dict[str, Tool]:
        by_name: dict[str, list[McpTool]] = {}
        for tool in offered:
            by_name.setdefault(tool.name, []).append(tool)
        named: dict[str, Tool] = {}
        for name, same in by_name.items():
            if len(same) > 1:  # it would be unclear which tool ran
                colliding = [tool.remote_name for tool in same]
                _log.warning("mcp.tools_left_out", server=server, name=name, tools=colliding)
                continue
            kept = self._operated(same[0])
            if kept is not None:
                named[name] = kept
        return named


async def _resources_of(client: "mcp.Client") -> list[JsonObject]:
    async def page(cursor: str | None) -> "tuple[list[mcp_types.Resource], str | None]":
        found = await client.list_resources(cursor=cursor)
        return found.resources, found.next_cursor

    resources, _ = ([], False) if client.server_capabilities.resources is None else await all_pages(page, ITEMS_MAX)
    return [
        {
            "uri": resource.uri,
            "name": resource.title or resource.name,
            "description": resource.description or "",
            "mime_type": resource.mime_type or "",
        }
        for resource in resources
        if not has_control_characters(resource.uri)
    ]


async def _prompts_of(client: "mcp.Client") -> list[JsonObject]:
    async def page(cursor: str | None) -> "tuple[list[mcp_types.Prompt], str | None]":
        found = await client.list_prompts(cursor=cursor)
        return found.prompts, found.next_cursor

    prompts, _ = ([], False) if client.server_capabilities.prompts is None else await all_pages(page, ITEMS_MAX)
    return [
        {
            "name": prompt.name,
            "description": prompt.description or prompt.title or "",
            "arguments": [
                {"name": wanted.name, "description": wanted.description or "", "required": bool(wanted.required)}
                for wanted in prompt.arguments or ()
            ],
        }
        for prompt in prompts
        if not has_control_characters(prompt.name)
    ]
