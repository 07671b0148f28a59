"""One tool of an MCP server as a `Tool`. What the server says of itself is its name, description and schema; policy
and timeout are the operator's (MCP-2).

Called by the runner like any other. The one rule: whatever the server answers or fails to answer is a result or a
`ToolFailed` with a sentence, so that the model reads it and the run goes on (LOOP-5).
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from protocol.errors import ToolFailed
from protocol.messages import JsonObject
from protocol.tool_names import mcp_tool_name
from server.foreign import pass_on
from server.tools.base import Policy, Progress, Retry, ToolContext, ToolOutput, ToolResult
from server.tools.mcp.connection import Connection
from server.tools.mcp.content import result_text
from server.tools.mcp.live import reason_of
from server.tools.traits import NO_TRAITS

if TYPE_CHECKING:
    import mcp
    import mcp_types

__all__ = ["McpTool"]

DESCRIPTION_MAX_CHARACTERS = 8_192
"""Of a foreign text that stands in every request to a model."""


class McpTool:
    """It may outlive its connection; a call then fails with the reason."""

    source = "mcp"
    retry: Retry = "once"
    category = ""
    hide_input = False
    label_arg = None
    traits = NO_TRAITS

    def __init__(self, connection: Connection, offered: "mcp_types.Tool") -> None:
        self._connection = connection
        self.remote_name = offered.name
        self.name = mcp_tool_name(connection.spec.name, offered.name)
        self.description = (offered.description or offered.title or "")[:DESCRIPTION_MAX_CHARACTERS]
        self.input_schema: JsonObject = dict(offered.input_schema)
        self.policy: Policy = connection.spec.policy
        self.timeout_seconds = connection.spec.timeout_seconds

    def __repr__(self) -> str:
        return f"<tool {self.remote_name!r} of {self._connection.spec!r}>"

    async def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        """Progress through the context as the server reports it, then one result.

        Raises:
            ToolFailed: the server refused the call, broke off or is not there.
        """

        async def report(progress: float, total: float | None, message: str | None) -> None:
            context.report(Progress(message=message, fraction=progress / total if total else None))

        async def call(client: "mcp.Client") -> "mcp_types.CallToolResult":
            return await client.call_tool(self.remote_name, arguments, progress_callback=report)

        try:
            result = await self._connection.ask(call)
        except ToolFailed:
            raise
        except BaseException as wrong:  # boundary: a foreign server, through a foreign SDK
            pass_on(wrong)
            name = self._connection.spec.name
            raise ToolFailed(f"The MCP server {name} failed the call: {reason_of(wrong)}") from wrong
        yield ToolResult(content=result_text(result), failed=bool(result.is_error))
