"""Builds the tools of the server, of the operator's file and of the MCP servers, with the operator's settings
applied."""

from collections.abc import Collection, Iterable, Mapping
from importlib.util import find_spec

import structlog
from msgspec.structs import replace

from threadcast.agent_loop.calls.previews import NOT_RUN_BY_SERVER
from threadcast.api.ports import WorkerLimits
from threadcast.profiles.payload_types import PayloadType, check_type
from threadcast.settings import Mcp, Secret, Settings
from threadcast.settings import Tool as ToolSettings
from threadcast.settings.values import revealed
from threadcast.tools.base import DEFAULT_TIMEOUT_SECONDS, Tool
from threadcast.tools.client import ClientTool
from threadcast.tools.demo import DEMO_TOOLS
from threadcast.tools.http import HttpClient, HttpTool
from threadcast.tools.mcp.hub import McpHub
from threadcast.tools.operated import OperatedTool
from threadcast.tools.payloads import get_payload
from threadcast.tools.process_pool import POOL_MAX
from threadcast.tools.programs_user import ProgramsUser, programs_user_of
from threadcast.tools.python import PythonTool
from threadcast.tools.registry import Tools
from threadcast.tools.runner import TOOL_RESULT_MAX_BYTES
from threadcast_protocol.wire.tool_names import mcp_server_of, server_wildcard

__all__ = ["mcp_hub_of", "operated_of_agent", "programs_user_in", "tools_of", "untrusted_of", "worker_limits_of"]

_log = structlog.get_logger()

ASKING_POLICIES = ("auto", "ask", "deny")
"""The policies with which the server can ask a person before a call. The other policies cannot: a tool with previews
asks after the call, and a client's tool runs at the client."""

POLICIES_CARRIED_OUT = ("auto", "ask", "deny", "preview", "client")


def tools_of(settings: Settings, own: list[Tool], http: HttpClient) -> Tools:
    """Return all tools except the tools of MCP servers, which are known only after a connection. `own` are the tools of
    the operator's file. Raises ValueError if a setting is wrong."""
    theirs = frozenset(name for name in settings.tools if mcp_server_of(name) in settings.mcp)
    services = [_http_tool(name, said, http) for name, said in settings.tools.items() if said.url]
    taken = {tool.name for tool in own} | {tool.name for tool in services}
    ours: list[Tool] = [*_demo_tools(settings, taken), get_payload, *own, *services]
    operated = _operated(ours, settings.tools, settings.limits.tool_timeout_seconds, theirs)
    for tool in operated:
        if tool.traits.approver == "another":
            _check_approver(tool.name, tool.policy, settings)
    return Tools(operated)


def operated_of_agent(settings: Settings, tool: Tool) -> Tool | None:
    """Apply the operator's settings to a tool that an agent has declared during a run, and return the tool; None if the
    settings disable it."""
    said = settings.tools.get(tool.name, ToolSettings())
    return OperatedTool(tool, said, settings.limits.tool_timeout_seconds) if said.enabled else None


def worker_limits_of(tools: Iterable[Tool]) -> WorkerLimits:
    """Return the limits of workers for these tools, for `GET /v1/caps`."""
    return WorkerLimits(
        tool_timeout_max_seconds=max((tool.timeout_seconds for tool in tools), default=DEFAULT_TIMEOUT_SECONDS),
        tool_result_max_bytes=TOOL_RESULT_MAX_BYTES,
        worker_processes_max_count=POOL_MAX,
    )


def _demo_tools(settings: Settings, taken: Collection[str]) -> list[PythonTool]:
    """Return all demo tools if there are demo models and no tokens; otherwise only the demo tools that the
    configuration names and that no other tool replaces. A server with tokens is used by people who do not know each
    other, and the demo tools write files and occupy workers."""
    if settings.has_demo and not settings.auth.tokens:
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
    """Return the hub of the configured MCP servers, which are not yet connected.

    Raises:
        ValueError: the extra is missing, or a setting of a tool is wrong.
    """
    wanted = {name: server for name, server in settings.mcp.items() if server.enabled}
    if wanted and find_spec("mcp") is None:
        raise ValueError(
            f"mcp.{min(wanted)}: MCP servers need the extra `mcp`; install it with `pip install 'threadcast[mcp]'`, or "
            f"set mcp.{min(wanted)}.enabled = false"
        )
    for name, said in settings.tools.items():
        if mcp_server_of(name) in settings.mcp:
            _check_authorization(name, said)
        if mcp_server_of(name) in settings.mcp and said.policy not in (None, "auto", "ask", "deny"):
            raise ValueError(
                f"tools.{name}: the policy {said.policy!r} does not exist for MCP tools; use auto, ask, deny"
            )
        server = settings.mcp.get(mcp_server_of(name) or "")
        if server is not None and said.approver == "another":
            _check_approver(name, said.policy or server.policy, settings)

    user = programs_user_in(settings)
    if user is not None:
        wanted = {name: _run_as(user, server) if server.command else server for name, server in wanted.items()}

    def operated(tool: Tool) -> Tool | None:
        said = settings.tools.get(tool.name, ToolSettings())
        if tool.name in own:
            _log.warning("mcp.tool_left_out", name=tool.name, detail="another tool of the server has this name")
            return None
        return OperatedTool(tool, said, tool.timeout_seconds) if said.enabled else None

    return McpHub(
        wanted,
        operated,
        settings.limits.tool_timeout_seconds,
        has_tokens=bool(settings.auth.tokens),
        user="" if user is None else user.name,
    )


def untrusted_of(settings: Settings, own: Tools) -> frozenset[str]:
    """Return the names of the tools whose results are untrusted, with a wildcard for each untrusted MCP server. The
    names come from the settings and not from the MCP servers, because a server may hide its tools after it has
    answered."""
    servers = {server_wildcard(name) for name, server in settings.mcp.items() if server.untrusted}
    named = {name for name, said in settings.tools.items() if said.untrusted}
    return frozenset(servers | named | {tool.name for tool in own.values() if tool.traits.untrusted})


def programs_user_in(settings: Settings) -> ProgramsUser | None:
    """Return the user that runs the programs of tools; None means the server's own user. Raises ValueError if the
    server cannot start programs as the configured user."""
    return programs_user_of(settings.server.programs_user, settings.store.data_path / "programs")


def _run_as(user: ProgramsUser, server: Mcp) -> Mcp:
    """Return the settings of an MCP server whose program runs as `user`."""
    program, *arguments = user.command([server.command, *server.args])
    variables = {name: Secret(value) for name, value in user.environment(revealed(server.env)).items()}
    return replace(server, command=program, args=arguments, env=variables)


def _http_tool(name: str, said: ToolSettings, client: HttpClient) -> HttpTool:
    if not said.description:
        raise ValueError(f"tools.{name}: a tool with a url needs a description, by which models choose it")
    return HttpTool(
        name,
        said.url,
        client,
        method=said.method,
        headers=revealed(said.headers),
        description=said.description,
        input_schema=said.input_schema or None,
        sends_authorization=bool(said.forward_auth),
    )


def _operated(
    tools: list[Tool], table: dict[str, ToolSettings], default_timeout_seconds: float, theirs: frozenset[str]
) -> list[Tool]:
    """Apply the settings `table` to `tools`, and add the tools of clients. `theirs` are names in the table that belong
    to MCP servers. Raises ValueError if a setting is wrong."""
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
        if tool.policy not in POLICIES_CARRIED_OUT:  # refuse to start rather than run the tool without approval
            raise ValueError(
                f"tool {tool.name}: there is no policy {tool.policy!r}; use {', '.join(POLICIES_CARRIED_OUT)}"
            )
        if tool.policy == "client":
            _check_authorization(tool.name, wanted[tool.name])
        _check_schema(tool)
        if tool.traits.sensitive and tool.policy not in ASKING_POLICIES:
            raise ValueError(
                f"tools.{tool.name}: a sensitive tool asks before it runs, which the policy {tool.policy!r} does not; "
                "use the policy auto or ask, or leave sensitive out"
            )
    own = {tool.name: tool for tool in kept}
    for tool in kept:
        if tool.policy == "preview":
            _check_commit_approver(tool, own, table)
            _show_as_commit_says(tool, own, table)
            _check_preview(tool, own)
    return [*kept]


def _check_authorization(name: str, said: ToolSettings) -> None:
    """Raise ValueError if the settings give the caller's credentials to a tool of an MCP server or of a client."""
    if said.forward_auth:
        raise ValueError(
            f"tools.{name}: forward_auth is for tools with a url and for those of server.app; a tool of an MCP server "
            "or of a client is never given the caller's Authorization. Leave it out"
        )


def _check_approver(name: str, policy: str, settings: Settings) -> None:
    """Raise ValueError for a tool that needs another approver if the tool would never ask, or if no caller could
    approve."""
    if policy != "ask":
        raise ValueError(
            f"tools.{name}: approver = 'another' needs the policy 'ask', since the policy {policy!r} does not ask "
            "before a call"
        )
    if not any(token.approves_for for token in settings.auth.tokens):
        raise ValueError(
            f"tools.{name}: approver = 'another', but nobody could approve; name the requesters in approves_for of "
            "another caller's [[auth.tokens]]"
        )


def _check_schema(tool: Tool) -> None:
    """Raise ValueError if the tool's schema of previews is not valid."""
    try:
        check_type(PayloadType(name=tool.name, schema=tool.traits.preview_schema))
    except ValueError as wrong:
        raise ValueError(f"tool {tool.name}: preview_{wrong}") from None


def _check_commit_approver(tool: OperatedTool, own: Mapping[str, Tool], table: dict[str, ToolSettings]) -> None:
    """Raise ValueError if the commit tool needs another approver: the person who accepts a preview runs it."""
    name = tool.traits.commit_tool
    approver = own[name].traits.approver if name in own else table.get(name, ToolSettings()).approver
    if approver == "another":
        raise ValueError(
            f"tool {tool.name}: its commit_tool {name} has approver = 'another', which previews do not keep; leave one "
            "of them out"
        )


def _show_as_commit_says(tool: OperatedTool, own: Mapping[str, Tool], table: dict[str, ToolSettings]) -> None:
    """Give a tool of previews the type and schema that its commit tool declares (OLD-7). Raises ValueError if the tool
    names another type itself."""
    commit = own.get(tool.traits.commit_tool)
    said = commit.traits if commit is not None else table.get(tool.traits.commit_tool)  # None for an MCP server's tool
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
    """Raise ValueError if the previews of `tool` could not be shown or carried out. A commit tool of an MCP server is
    not checked."""
    if not tool.traits.payload_type:
        raise ValueError(
            f"tool {tool.name}: with the policy 'preview' it needs a payload_type, by which clients show it; or its "
            "commit_tool needs a preview_type"
        )
    name = tool.traits.commit_tool
    if not name or (name not in own and mcp_server_of(name) is not None):
        return
    if name not in own:
        raise ValueError(f"tool {tool.name}: its commit_tool {name!r} does not exist; known: {', '.join(sorted(own))}")
    if own[name].policy in NOT_RUN_BY_SERVER:
        raise ValueError(f"tool {tool.name}: its commit_tool {name!r} has the policy {own[name].policy!r}; use auto")
