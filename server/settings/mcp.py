"""The MCP servers whose tools models may be offered."""

from typing import Literal

from server.settings.shown import check_http_url
from server.settings.values import Seconds, Secret, Section

__all__ = ["Mcp"]


class Mcp(Section, frozen=True):
    """An MCP server, whose tools models may be offered as `mcp__NAME__TOOL`. Needs the extra `mcp`."""

    command: str = ""
    """A program that speaks MCP over its standard input and output; it is started with the server."""

    args: list[str] = []
    env: dict[str, Secret] = {}
    """Added to PATH, HOME and the like; nothing else of our own environment is passed on."""

    url: str = ""
    """Instead of a command: where a server speaks MCP over streamable HTTP."""

    headers: dict[str, Secret] = {}
    """Sent with every request to `url`, such as Authorization."""

    policy: Literal["auto", "ask", "deny"] = "ask"
    """For all its tools; `tools.mcp__NAME__TOOL.policy` says otherwise for one. auto: only for servers that do no
    harm, whatever a model asks of them."""

    timeout_seconds: Seconds | None = None
    """For a call, a resource or a prompt. Unset: `limits.tool_timeout_seconds`."""

    enabled: bool = True

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server needs either a command or a url")
        if self.url:
            check_http_url("url", self.url)
