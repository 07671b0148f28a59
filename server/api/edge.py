"""What every endpoint is lent: store, hub, authenticator and limits, built once by `app.py`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from protocol.errors import NotFound, TooLarge, Unauthorized
from protocol.import_files import IMPORT_MAX_MESSAGES
from protocol.principal import Principal
from server.agent.place.profile import Profiles
from server.api.auth import Authenticator
from server.api.endpoints import EndpointRule
from server.api.errors import BodyTooSlow
from server.api.quotas import Quotas
from server.deadlines import Deadline
from server.providers.registry import Providers
from server.readiness import Readiness
from server.relay.feeds import Feeds
from server.relay.hub import Hub
from server.relay.vault import Vault
from server.store.port import ChatMeta, Store
from server.telemetry import Metrics
from server.tools.base import Tool
from server.tools.mcp.hub import McpHub

__all__ = [
    "BODY_MIN_BYTES_PER_SECOND",
    "BODY_TIMEOUT_SECONDS",
    "PRINCIPAL_HEADER",
    "Edge",
    "edge_of",
    "hand_body",
    "read_body",
]

PRINCIPAL_HEADER = "threadcast-principal"
"""The header that names the caller that a request expects (PROTOCOL §1)."""

BODY_TIMEOUT_SECONDS = 30.0
"""For a body to arrive; what comes earns it more time, at the rate below."""

BODY_MIN_BYTES_PER_SECOND = 32_768
"""256 kbit/s, a poor mobile uplink: a large image may take minutes, a trickle of bytes no more than the timeout."""


IMPORT_MAX_BYTES = 1_073_741_824
"""The largest body of one import, unless the operator sets another limit."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Endpoints find it in the ASGI scope's state."""

    store: Store
    hub: Hub
    feeds: Feeds
    auth: Authenticator
    metrics: Metrics
    readiness: Readiness
    profiles: Profiles
    providers: Providers
    tools: list[Tool]
    mcp: McpHub
    quotas: Quotas
    body_max_bytes: int
    buffer_max_bytes: int
    stall_seconds: float
    import_max_bytes: int = IMPORT_MAX_BYTES
    import_messages_max_count: int = IMPORT_MAX_MESSAGES
    body_timeout_seconds: float = BODY_TIMEOUT_SECONDS
    keeps_traces: bool = True
    vault: Vault | None = None
    """None: no tool wants callers' credentials, so none are held."""
    shares_port: bool = False
    """Other processes answer on the same port, so what is asked of one process cannot be asked here."""
    frame_origins: Sequence[str] = ()
    """Origins whose pages may frame the page and hand it context; "self" is the server's own."""
    endpoints: Mapping[str, EndpointRule] = field(default_factory=dict)
    """What is configured of the one-shot endpoints, by their path."""

    def principal(self, scope: Scope) -> Principal:
        """Return who is calling.

        Raises:
            Unauthorized: the server does not know the caller, or the request names another one.
        """
        headers = Headers(scope=scope)
        principal = self.auth.authenticate(headers.get("authorization"))
        if (headers.get(PRINCIPAL_HEADER) or principal.id) != principal.id:
            raise Unauthorized("somebody else is signed in by now")
        return principal

    async def own(self, chat_id: str, principal: Principal) -> ChatMeta:
        """The meta of the caller's own chat. Unknown, deleted and somebody else's look the same (AUTH-2).

        Raises:
            NotFound: any of these.
        """
        meta = await self.own_or_new(chat_id, principal)
        if meta is None:
            raise NotFound("no such chat")
        return meta

    async def own_or_new(self, chat_id: str, principal: Principal) -> ChatMeta | None:
        """The meta of the caller's own chat; None when there is no chat of this id, so that it may become the caller's.

        Raises:
            NotFound: somebody else's, or deleted.
        """
        meta = await self.store.meta(chat_id)
        if meta is not None and (meta.deleted or meta.owner != principal.id):
            raise NotFound("no such chat")
        return meta


def edge_of(request: Request) -> Edge:
    edge: Edge = request.app.state.edge
    return edge


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The body, refused before it is buffered when it is larger than `max_bytes`, and given up when it does not come.
    Raises as `hand_body`."""
    body = bytearray()

    async def take(chunk: bytes) -> None:
        body.extend(chunk)

    await hand_body(request, max_bytes, take)
    return bytes(body)


async def hand_body(request: Request, max_bytes: int, take: Callable[[bytes], Awaitable[None]]) -> None:
    """Pass the pieces of the body to `take` as they arrive.

    Raises:
        TooLarge: more than `max_bytes`, as told or as sent.
        BodyTooSlow: not whole within the timeout and a second for each `BODY_MIN_BYTES_PER_SECOND` that came.
    """
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > max_bytes:
        raise TooLarge(f"the body is larger than {max_bytes} bytes")
    timeout_seconds = edge_of(request).body_timeout_seconds
    size = 0
    given_seconds = timeout_seconds
    try:
        async with Deadline(timeout_seconds) as patience:
            async for chunk in request.stream():
                size += len(chunk)
                if size > max_bytes:
                    raise TooLarge(f"the body is larger than {max_bytes} bytes")
                await take(chunk)
                given_seconds = timeout_seconds + size / BODY_MIN_BYTES_PER_SECOND
                patience.allow(given_seconds)
    except TimeoutError:
        raise BodyTooSlow(f"the body did not arrive within {round(given_seconds, 1):g} s") from None
