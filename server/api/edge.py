"""What every endpoint is lent: store, hub, authenticator and limits, built once by `app.py`."""

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from protocol.errors import NotFound, TooLarge
from protocol.principal import Principal
from server.agent.profile import Profiles
from server.api.auth import Authenticator
from server.providers.registry import Providers
from server.relay.hub import Hub
from server.store.port import ChatMeta, Store
from server.telemetry import Metrics
from server.tools.base import Tool
from server.tools.mcp.hub import McpHub

__all__ = ["Edge", "edge_of", "read_body"]


@dataclass(frozen=True, slots=True)
class Edge:
    """Endpoints find it in the ASGI scope's state."""

    store: Store
    hub: Hub
    auth: Authenticator
    metrics: Metrics
    profiles: Profiles
    providers: Providers
    tools: list[Tool]
    mcp: McpHub
    body_max_bytes: int
    buffer_max_bytes: int
    stall_seconds: float

    def principal(self, scope: Scope) -> Principal:
        """Who is calling. Raises Unauthorized."""
        authorization = Headers(scope=scope).get("authorization")
        return self.auth.authenticate(authorization)

    async def own(self, chat_id: str, principal: Principal) -> ChatMeta:
        """The meta of the caller's own chat. Unknown, deleted and somebody else's look the same (AUTH-2).

        Raises:
            NotFound: any of these.
        """
        meta = await self.store.meta(chat_id)
        if meta is None or meta.deleted or meta.owner != principal.id:
            raise NotFound("no such chat")
        return meta


def edge_of(request: Request) -> Edge:
    edge: Edge = request.app.state.edge
    return edge


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The body, refused before it is buffered when it is larger than `max_bytes`. Raises TooLarge."""
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > max_bytes:
        raise TooLarge(f"the body is larger than {max_bytes} bytes")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise TooLarge(f"the body is larger than {max_bytes} bytes")
    return bytes(body)
