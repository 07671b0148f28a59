"""How the tools of MCP servers are called, and which names a list of names covers (MCP-2, PROTOCOL §11).

A tool `read` of the server `files` is `mcp__files__read`; `mcp__files__*` stands for all tools of that server. Pure:
the decider, the profiles and the MCP client agree on names through here. The one rule: a server's name holds no `__`
and no `_` at its ends, so that a tool's name says without doubt whose it is.
"""

import hashlib
import re
from collections.abc import Container

__all__ = ["SERVER_NAME", "all_of_server", "covers", "mcp_server_of", "mcp_tool_name"]

SERVER_NAME = re.compile(r"(?=.{1,24}\Z)[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*")
"""24 characters leave more than half of a tool's 64 to the tool."""

NAME_MAX_CHARACTERS = 64
"""What OpenAI and Anthropic take as the name of a function."""

_DIGEST_CHARACTERS = 8
_PREFIX = "mcp__"
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def mcp_tool_name(server: str, tool: str) -> str:
    """The name that models are told. Characters that they do not take become `_`; a name that is too long ends in a
    digest of the whole."""
    name = f"{_PREFIX}{server}__{_UNFIT.sub('_', tool)}"
    if len(name) <= NAME_MAX_CHARACTERS:
        return name
    digest = hashlib.sha256(tool.encode(errors="replace")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[: NAME_MAX_CHARACTERS - _DIGEST_CHARACTERS - 1]}_{digest}"


def mcp_server_of(name: str) -> str | None:
    """The server whose tool that is; None for a tool of another source."""
    prefix, _, rest = name.partition("__")
    server, separator, tool = rest.partition("__")
    return server if prefix == "mcp" and separator and tool and SERVER_NAME.fullmatch(server) else None


def all_of_server(name: str) -> str:
    """The name that stands for all tools of the same MCP server; the name itself when it is no MCP tool's."""
    server = mcp_server_of(name)
    return name if server is None else f"{_PREFIX}{server}__*"


def covers(names: Container[str], name: str) -> bool:
    """Is `name` among `names`, by itself or through all tools of its server?"""
    return name in names or all_of_server(name) in names
