"""The endpoints that list the resources and prompts of MCP servers, which a message can attach (MCP-3, MCP-4, PROTOCOL
§13).

In `threadcast serve`, the endpoints use the connections of the actors; a separate web process opens its own connections
at the first request. If an MCP server does not answer, `errors` lists this server; the answer still has the content of
the other servers. The lists have only resources and prompts that this caller may attach (SEC-6).
"""

from starlette.requests import Request
from starlette.responses import Response

from threadcast.api.edge import caller_of
from threadcast.api.errors import answer
from threadcast.api.operation import Answer, Operation
from threadcast_protocol.wire.server_info import McpPrompts, McpResources

__all__ = ["prompts", "resources"]


@Operation(
    "GET",
    "/v1/mcp/resources",
    "listMcpResources",
    "List the resources of MCP servers, which a message can attach.",
    tag="server",
    answers={200: Answer("The resources, and the servers that did not answer.", McpResources)},
)
async def resources(request: Request) -> Response:
    """`GET /v1/mcp/resources`: lists resources, and servers that failed."""
    edge, principal = caller_of(request)
    found, errors = await edge.mcp.resources(principal.roles)
    return answer(200, McpResources(found, errors))


@Operation(
    "GET",
    "/v1/mcp/prompts",
    "listMcpPrompts",
    "List the prompts of MCP servers, which a message can attach.",
    tag="server",
    answers={200: Answer("The prompts, and the servers that did not answer.", McpPrompts)},
)
async def prompts(request: Request) -> Response:
    """`GET /v1/mcp/prompts`: lists prompts, and servers that failed."""
    edge, principal = caller_of(request)
    found, errors = await edge.mcp.prompts(principal.roles)
    return answer(200, McpPrompts(found, errors))
