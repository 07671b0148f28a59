"""Checks the tools that a message declares (PROTOCOL §12): front ends, editors and other programs bring tools of their
own for one run."""

from collections.abc import Sequence

import msgspec

from threadcast.api.edge import Edge
from threadcast_protocol.wire.commands import DeclaredTool
from threadcast_protocol.wire.errors import BadRequest, Forbidden
from threadcast_protocol.wire.tool_names import mcp_server_of

__all__ = ["DECLARED_TOOLS_MAX_BYTES", "check_declared_tools"]

DECLARED_TOOLS_MAX_BYTES = 65_536
"""Maximum bytes of all declared tools of a message as JSON. The chat's state holds the tools of its newest 32 such
messages, and each model call of the run contains them."""


def check_declared_tools(edge: Edge, tools: Sequence[DeclaredTool] | None) -> None:
    """Check the tools of a message. None means that an edited message keeps its tools.

    Raises:
        Forbidden: the operator does not allow such tools.
        BadRequest: a name belongs to the server or occurs twice, a schema does not describe an object, or the tools are
            too large.
    """
    if not tools:
        return
    if not edge.limits.client_tools:
        raise Forbidden("this server offers no tools of clients (limits.client_tools); send the message without tools")
    size = len(msgspec.json.encode(tools))
    if size > DECLARED_TOOLS_MAX_BYTES:
        raise BadRequest(f"tools: at most {DECLARED_TOOLS_MAX_BYTES} bytes of JSON, not {size}", path="/tools")
    known = edge.profiles.known_tools()
    seen: set[str] = set()
    for number, tool in enumerate(tools):
        path = f"/tools/{number}"
        if tool.name in known or mcp_server_of(tool.name) is not None:
            raise BadRequest(
                f"tools: the server has a tool {tool.name!r}, or keeps the name for itself; choose another name",
                path=f"{path}/name",
            )
        if tool.name in seen:
            raise BadRequest(f"tools: two tools are called {tool.name!r}", path=f"{path}/name")
        seen.add(tool.name)
        if tool.input_schema.get("type", "object") != "object":
            raise BadRequest(
                'tools: the schema of a tool is that of an object: {"type": "object", …}', path=f"{path}/input_schema"
            )
