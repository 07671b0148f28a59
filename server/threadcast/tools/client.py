"""Tools that a client runs, such as an IDE or a browser page (PROTOCOL §12).

The server has only the description and the timeout: it publishes the call, and a client that watches the chat answers
it.
"""

from collections.abc import AsyncIterator

from threadcast.tools.base import Policy, Retry, ToolOutput
from threadcast.tools.context import ToolContext
from threadcast.tools.traits import NO_TRAITS
from threadcast_protocol.wire.errors import ToolFailed
from threadcast_protocol.wire.messages import JsonObject

__all__ = ["CLIENT_TIMEOUT_SECONDS", "ClientTool"]

CLIENT_TIMEOUT_SECONDS = 600.0
"""Default timeout of a client: a person may have to decide first (PROTOCOL §12)."""

ANY_OBJECT: JsonObject = {"type": "object", "properties": {}}


class ClientTool:
    """A `Tool` that has only a description and cannot run on the server."""

    policy: Policy = "client"
    retry: Retry = "once"
    category = ""
    source = "client"
    hide_input = False
    label_arg = None
    traits = NO_TRAITS

    def __init__(
        self, name: str, description: str, input_schema: JsonObject | None = None, timeout_seconds: float | None = None
    ) -> None:
        self.name = name
        self.description = description
        self.input_schema = input_schema or ANY_OBJECT
        self.timeout_seconds = timeout_seconds or CLIENT_TIMEOUT_SECONDS

    def run(self, arguments: JsonObject, context: ToolContext) -> AsyncIterator[ToolOutput]:
        """Raise ToolFailed, because the agent only publishes calls of this tool and never runs them."""
        raise ToolFailed("This tool runs at a client, not at the server.")
