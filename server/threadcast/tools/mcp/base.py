"""The error of an MCP server that is not connected. Imports no SDK."""

from threadcast_protocol.wire.errors import ToolFailed

__all__ = ["McpUnavailable"]


class McpUnavailable(ToolFailed):
    """The server is not connected, or the connection was lost during the call, as the message tells."""
