"""What the configured MCP servers offer to be attached: resources and prompts (MCP-3, MCP-4, PROTOCOL §13).

In `serve` the connections are those that the actors use; a process that is only `web` opens its own when it is first
asked. A server that cannot be asked stands in `errors`, and the others answer all the same.
"""

from starlette.requests import Request
from starlette.responses import Response

from server.api.edge import edge_of
from server.api.errors import answer

__all__ = ["prompts", "resources"]


async def resources(request: Request) -> Response:
    """`GET /v1/mcp/resources`."""
    edge = edge_of(request)
    edge.principal(request.scope)
    found, errors = await edge.mcp.resources()
    return answer(200, {"resources": found, "errors": errors})


async def prompts(request: Request) -> Response:
    """`GET /v1/mcp/prompts`."""
    edge = edge_of(request)
    edge.principal(request.scope)
    found, errors = await edge.mcp.prompts()
    return answer(200, {"prompts": found, "errors": errors})
