"""Names of the tools of MCP servers, and names with wildcards (MCP-2, PROTOCOL §11).

The tool `read` of the server `files` is named `mcp__files__read`; `mcp__files__*` means all tools of that server. A
server's name contains no `__` and has no `_` at its ends, so that a tool's name identifies its server unambiguously.
All functions are pure.
"""

import hashlib
import re
from collections.abc import Container

__all__ = ["SERVER_NAME", "all_of_server", "covers", "mcp_server_of", "mcp_tool_name", "server_wildcard"]

SERVER_NAME = re.compile(r"(?=.{1,24}\Z)[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*")
"""The pattern of a server's name. A name of a server has at most 24 characters, which leaves more than half of the 64
characters to the tool's own name."""

NAME_MAX_CHARACTERS = 64
"""The maximum length of a function's name in the APIs of OpenAI and Anthropic."""

_DIGEST_CHARACTERS = 8
_PREFIX = "mcp__"
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def mcp_tool_name(server: str, tool: str) -> str:
    """Return the name of a tool for models. Characters that models do not accept become `_`. A name that is too long is
    cut and ends in a digest of the tool's own name."""
    name = f"{_PREFIX}{server}__{_UNFIT.sub('_', tool)}"
    if len(name) <= NAME_MAX_CHARACTERS:
        return name
    digest = hashlib.sha256(tool.encode(errors="replace")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[: NAME_MAX_CHARACTERS - _DIGEST_CHARACTERS - 1]}_{digest}"


def mcp_server_of(name: str) -> str | None:
    """Return the MCP server in the name of a tool, or None if the tool is not from an MCP server."""
    prefix, _, rest = name.partition("__")
    server, separator, tool = rest.partition("__")
    return server if prefix == "mcp" and separator and tool and SERVER_NAME.fullmatch(server) else None


def all_of_server(name: str) -> str:
    """Return the wildcard for all tools of the same MCP server, or `name` itself if it does not name a tool of an MCP
    server."""
    server = mcp_server_of(name)
    return name if server is None else server_wildcard(server)


def server_wildcard(server: str) -> str:
    """Return the wildcard for all tools of the MCP server `server`."""
    return f"{_PREFIX}{server}__*"


def covers(names: Container[str], name: str) -> bool:
    """Return whether `names` contains `name` or the wildcard for all tools of its server."""
    return name in names or all_of_server(name) in names
