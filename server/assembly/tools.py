"""The tools of our own, the operator's file and the MCP servers, under the operator's table."""

from collections.abc import Collection, Mapping
from importlib.util import find_spec

import structlog
from msgspec.structs import replace

from protocol.tool_names import mcp_server_of
from server.agent.calls.previews import NOT_RUN_BY_SERVER
from server.agent.place.payload_types import PayloadType, check_type
from server.settings import Settings
from server.settings import Tool as ToolSettings
from server.tools.base import Tool
from server.tools.client import ClientTool
from server.tools.demo import DEMO_TOOLS
from server.tools.http import HttpClient, HttpTool
from server.tools.mcp.base import ServerSpec
from server.tools.mcp.hub import McpHub
from server.tools.operated import OperatedTool
from server.tools.payloads import get_payload
from server.tools.python import PythonTool
from server.tools.registry import Tools

__all__ = ["mcp_hub_of", "tools_of"]

_log = structlog.get_logger()

POLICIES_CARRIED_OUT = ("auto", "ask", "deny", "preview", "client")


def tools_of(settings: Settings, own: list[PythonTool], http: HttpClient) -> Tools:
    """All but those of MCP servers, which are known when those are connected; `own` are those of the operator's file.
    Raises ValueError: what cannot be."""
    theirs = frozenset(name for name in settings.tools if mcp_server_of(name) in settings.mcp)
    services = [_http_tool(name, said, http) for name, said in settings.tools.items() if said.url]
    taken = {tool.name for tool in own} | {tool.name for tool in services}
    ours: list[Tool] = [*_demo_tools(settings, taken), get_payload, *own, *services]
    return Tools(_operated(ours, settings.tools, settings.limits.tool_timeout_seconds, theirs))


def _demo_tools(settings: Settings, taken: Collection[str]) -> list[PythonTool]:
    """Return all demo tools if there are demo models; otherwise only those that the configuration names and no other
    tool replaces."""
    if settings.has_demo:
        return list(DEMO_TOOLS)
    if settings.models.demo is False:
        return []
    profiles = settings.profiles.values()
    lists = [profile.tools or [] for profile in profiles]
    lists += [scope.tools for profile in profiles for scope in profile.scopes.values()]
    lists += [[binding.tool for binding in profile.bindings] for profile in profiles]
    named = {*settings.tools, *(name for names in lists for name in names)} - set(taken)
    return [tool for tool in DEMO_TOOLS if tool.name in named]


def mcp_hub_of(settings: Settings, own: Tools) -> McpHub:
    """The configured MCP servers, not yet connected.

    Raises:
        ValueError: the extra is missing, or the table of tools says what cannot be.
    """
    wanted = {name: server for name, server in settings.mcp.items() if server.enabled}
    if wanted and find_spec("mcp") is None:
        raise ValueError(
            f"mcp.{min(wanted)}: MCP servers need the extra `mcp`; install it with `pip install 'threadcast[mcp]'`, or "
            f"set mcp.{min(wanted)}.enabled = false"
        )
    default_seconds = settings.limits.tool_timeout_seconds
    specs = [
        ServerSpec(
            name=name,
            command=server.command,
            args=tuple(server.args),
            env={key: value.reveal() for key, value in server.env.items()},
            url=server.url,
            headers={key: value.reveal() for key, value in server.headers.items()},
            policy=server.policy,
            timeout_seconds=server.timeout_seconds or default_seconds,
        )
        for name, server in wanted.items()
    ]
    for name, said in settings.tools.items():
        if mcp_server_of(name) in settings.mcp:
            _check_authorization(name, said)
        if mcp_server_of(name) in settings.mcp and said.policy not in (None, "auto", "ask", "deny"):
            raise ValueError(
                f"tools.{name}: the policy {said.policy!r} is not there for MCP tools; use auto, ask, deny"
            )

    def operated(tool: Tool) -> Tool | None:
        said = settings.tools.get(tool.name, ToolSettings())
        if tool.name in own:
            _log.warning("mcp.tool_left_out", name=tool.name, detail="a tool of our own has this name")
            return None
        return OperatedTool(tool, said, tool.timeout_seconds) if said.enabled else None

    return McpHub(specs, operated)


def _http_tool(name: str, said: ToolSettings, client: HttpClient) -> HttpTool:
    if not said.description:
        raise ValueError(f"tools.{name}: a tool with a url needs a description, by which models choose it")
    return HttpTool(
        name,
        said.url,
        client,
        method=said.method,
        headers={key: value.reveal() for key, value in said.headers.items()},
        description=said.description,
        input_schema=said.input_schema or None,
        sends_authorization=bool(said.forward_auth),
    )


def _operated(
    tools: list[Tool], table: dict[str, ToolSettings], default_timeout_seconds: float, theirs: frozenset[str]
) -> list[Tool]:
    """`theirs`: names in the table that are tools of MCP servers, known only when those are connected."""
    unknown = table.keys() - {tool.name for tool in tools} - theirs
    for name in sorted(unknown):
        wanted_tool = table[name]
        if wanted_tool.policy != "client" or not wanted_tool.description:
            known = ", ".join(tool.name for tool in tools)
            raise ValueError(
                f"tools.{name}: there is no such tool; known: {known}. "
                'A tool that clients carry out needs policy = "client" and a description'
            )
        tools = [*tools, ClientTool(name, wanted_tool.description, wanted_tool.input_schema or None)]
    wanted = {tool.name: table.get(tool.name, ToolSettings()) for tool in tools}
    kept = [
        OperatedTool(tool, wanted[tool.name], default_timeout_seconds) for tool in tools if wanted[tool.name].enabled
    ]
    for tool in kept:
        if tool.policy not in POLICIES_CARRIED_OUT:  # running it unasked would be worse than not starting
            raise ValueError(
                f"tool {tool.name}: there is no policy {tool.policy!r}; use {', '.join(POLICIES_CARRIED_OUT)}"
            )
        if tool.policy == "client":
            _check_authorization(tool.name, wanted[tool.name])
        _check_schema(tool)
    own = {tool.name: tool for tool in kept}
    for tool in kept:
        if tool.policy == "preview":
            _show_as_commit_says(tool, own, table)
            _check_preview(tool, own)
    return [*kept]


def _check_authorization(name: str, said: ToolSettings) -> None:
    """Raises ValueError: a caller's credentials go nowhere from an MCP server's tool, nor from a client's."""
    if said.forward_auth:
        raise ValueError(
            f"tools.{name}: forward_auth is for tools with a url and for those of server.app; a tool of an MCP server "
            "or of a client is never given the caller's Authorization. Leave it out"
        )


def _check_schema(tool: Tool) -> None:
    """Raise ValueError if the schema that the tool names for previews is no valid schema."""
    try:
        check_type(PayloadType(name=tool.name, schema=tool.traits.preview_schema))
    except ValueError as wrong:
        raise ValueError(f"tool {tool.name}: preview_{wrong}") from None


def _show_as_commit_says(tool: OperatedTool, own: Mapping[str, Tool], table: dict[str, ToolSettings]) -> None:
    """Give a preview's tool the type and schema that its commit tool names (OLD-7). Raises ValueError: it says another
    type itself."""
    commit = own.get(tool.traits.commit_tool)
    said = commit.traits if commit is not None else table.get(tool.traits.commit_tool)  # an MCP server's comes later
    if said is None:
        return
    traits = tool.traits
    if traits.payload_type and said.preview_type not in ("", traits.payload_type):
        raise ValueError(
            f"tool {tool.name}: its payload_type is {traits.payload_type!r}, and its commit_tool "
            f"{traits.commit_tool} has the preview_type {said.preview_type!r}; leave one of them out"
        )
    tool.traits = replace(
        traits,
        payload_type=traits.payload_type or said.preview_type,
        preview_schema=traits.preview_schema or said.preview_schema,
    )


def _check_preview(tool: Tool, own: Mapping[str, Tool]) -> None:
    """Raises ValueError: its previews could not be shown, or not be carried out. An MCP server's tool is believed."""
    if not tool.traits.payload_type:
        raise ValueError(
            f"tool {tool.name}: with the policy 'preview' it needs a payload_type, what it is shown as; or its "
            "commit_tool needs a preview_type"
        )
    name = tool.traits.commit_tool
    if not name or (name not in own and mcp_server_of(name) is not None):
        return
    if name not in own:
        raise ValueError(f"tool {tool.name}: its commit_tool {name!r} is not there; known: {', '.join(sorted(own))}")
    if own[name].policy in NOT_RUN_BY_SERVER:
        raise ValueError(f"tool {tool.name}: its commit_tool {name!r} has the policy {own[name].policy!r}; use auto")
