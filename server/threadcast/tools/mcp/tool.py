"""Presents one tool of an MCP server as a `Tool`. The server provides the tool's name, description and schema; the
operator sets policy and timeout (MCP-2).

The runner calls the tool like any other tool. Every answer of the server becomes a result and every failure a
`ToolFailed` with a sentence, so that the model reads the outcome and the run continues (LOOP-5).
"""

import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from threadcast.base.boundary import pass_on
from threadcast.tools.base import (
    Policy,
    Retry,
    ToolOutput,
    ToolResult,
)
from threadcast.tools.context import Progress, ToolContext
from threadcast.tools.mcp.connection import McpConnection
from threadcast.tools.mcp.content import result_text
from threadcast.tools.mcp.elicitation import AskingCall
from threadcast.tools.mcp.live import reason_of
from threadcast.tools.traits import NO_TRAITS
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.messages import JsonObject
from threadcast_protocol.wire.tool_names import mcp_tool_name

if TYPE_CHECKING:
    import mcp
    import mcp_types

__all__ = ["McpTool"]


class McpTool:
    """A tool of an MCP server. The object may outlive its connection; a call then fails with the reason why the
    connection ended."""

    source = "mcp"
    retry: Retry = "once"
    category = ""
    hide_input = False
    label_arg = None
    traits = NO_TRAITS

    def __init__(self, connection: McpConnection, offered: "mcp_types.Tool", timeout_seconds: float) -> None:
        self._connection = connection
        self.remote_name = offered.name
        self.name = mcp_tool_name(connection.name, offered.name)
        self.description = offered.description or offered.title or ""
        self.input_schema: JsonObject = dict(offered.input_schema)
        self.policy: Policy = connection.server.policy
        self.timeout_seconds = timeout_seconds

    def __repr__(self) -> str:
        return f"<tool {self.remote_name!r} of the MCP server {self._connection.name}>"

    async def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        """Report the server's progress through the context, then yield one result.

        Raises:
            ToolFailed: the server refused the call, disconnected, or cannot be reached.
        """

        async def report(progress: float, total: float | None, message: str | None) -> None:
            context.report(Progress(message=message, fraction=progress / total if total else None))

        async def call(client: "mcp.Client") -> "mcp_types.CallToolResult":
            return await client.call_tool(self.remote_name, arguments, progress_callback=report)

        asking = AskingCall(context)
        self._connection.elicitations.begin(asking)
        try:
            result = await self._connection.ask(call, asking)
        except ToolFailed:
            raise
        except BaseException as wrong:  # boundary: a foreign server, through a foreign SDK
            pass_on(wrong)
            raise ToolFailed(f"The MCP server {self._connection.name} failed the call: {reason_of(wrong)}") from wrong
        finally:
            self._connection.elicitations.end(asking)
        text, failed = result_text(result), bool(result.is_error)
        if failed and self._connection.server.command:
            text += _hint(text[:_DENIED_MAX_CHARACTERS], self._connection.user)
        yield ToolResult(content=text, failed=failed)


_DENIED = re.compile("permission denied|EACCES|EPERM|operation not permitted", re.IGNORECASE)
_DENIED_MAX_CHARACTERS = 10_000


_WORDLESS = re.compile(r"Error executing tool \S+")
"""Matches the result, if it contains nothing else, of a tool that raised an exception in a server written with the SDK
for Python. Such a server writes the exception to its error output alone."""


def _hint(text: str, user: str) -> str:
    """Return a hint that helps an operator to find the reason of a failure; "" if the failure itself tells the
    reason."""
    hints = []
    if is_wordless := _WORDLESS.fullmatch(text.strip()) is not None:
        hints.append("The lines mcp.stderr of Threadcast's log have the reason.")
    if user and (is_wordless or _DENIED.search(text)):
        hints.append(
            f"Threadcast runs this MCP server as the user {user}, who may lack access. That user may write to its "
            "HOME; the operator may give it access to other places, or choose another user by server.programs_user."
        )
    return f"\n({' '.join(hints)})" if hints else ""
