"""What the operator says of one MCP server, and what is said when it cannot be used.

Values only: the settings become a `ServerSpec` in `assembly/`, and nothing here knows the SDK.
"""

from typing import Literal, TypeAlias

import msgspec

from protocol.errors import ToolFailed

__all__ = ["McpUnavailable", "ServerSpec", "ServerStanding", "Standing"]

Standing: TypeAlias = Literal["not asked yet", "connecting", "connected", "down"]


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Either `command` with `args` and `env` (stdio) or `url` with `headers` (streamable HTTP). `env` is added to a
    few harmless variables of ours; our own keys are not passed on. Values of `env` and `headers` may be secrets, so
    `repr` shows none of them."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    policy: Literal["auto", "ask", "deny"] = "ask"
    timeout_seconds: float = 30.0

    def __repr__(self) -> str:
        return f"<MCP server {self.name}: {self.command or self.url}>"


class ServerStanding(msgspec.Struct, frozen=True):
    """How a server is doing, in words for people; `error` is empty while nothing is wrong."""

    name: str
    standing: Standing
    error: str
    tools_count: int


class McpUnavailable(ToolFailed):
    """The server is not connected, or went away in the middle; the sentence says which."""
