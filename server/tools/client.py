"""Tools that a client carries out: an IDE, a browser page (PROTOCOL §12).

The server knows their description and how long to wait; the call is published, and whoever watches the chat answers
it. So such a tool is data and runs nowhere here. The agent's plan never asks one to run.
"""

from collections.abc import AsyncIterator

from protocol.errors import ToolFailed
from protocol.messages import JsonObject
from server.tools.base import Policy, Retry, ToolContext, ToolOutput
from server.tools.traits import NO_TRAITS

__all__ = ["CLIENT_TIMEOUT_SECONDS", "ClientTool"]

CLIENT_TIMEOUT_SECONDS = 600.0
"""How long a client may take when nobody says otherwise: a person may have to look first (PROTOCOL §12)."""

ANY_OBJECT: JsonObject = {"type": "object", "properties": {}}


class ClientTool:
    """A `Tool` by description only."""

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
        """Never asked for: the plan publishes the call instead. Raises ToolFailed."""
        raise ToolFailed("This tool is carried out by a client, not by the server.")
