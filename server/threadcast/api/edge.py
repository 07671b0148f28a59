"""The dependencies of all endpoints, such as store, hub and limits, and functions that read requests."""

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from anyio.lowlevel import checkpoint
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from threadcast.api.answers import Answers
from threadcast.api.auth import Authenticator
from threadcast.api.bodies import Bodies, BodyRoom
from threadcast.api.errors import BODY_ROOM, AnotherUser, BodyTooSlow
from threadcast.api.ports import McpContents, Models, WorkerLimits
from threadcast.api.quotas import Quotas
from threadcast.api.storage import StorageBounds
from threadcast.base.deadlines import Deadline
from threadcast.base.json_bounds import JsonBounds
from threadcast.base.telemetry import Metrics
from threadcast.credentials import CredentialCache
from threadcast.fanout.feeds import Feeds
from threadcast.fanout.hub import Hub
from threadcast.http.readiness import Readiness
from threadcast.profiles.endpoint_rules import EndpointRule
from threadcast.profiles.profile import Profiles
from threadcast.settings.doors import Doors
from threadcast.settings.limits import Limits
from threadcast.store.families import delete_family
from threadcast.store.ports import ChatMeta, Store
from threadcast_protocol.wire.errors import BadRequest, IdTaken, NotFound, TooLarge
from threadcast_protocol.wire.ids import check_chat_id
from threadcast_protocol.wire.principal import Principal

__all__ = [
    "BODY_MIN_BYTES_PER_SECOND",
    "PRINCIPAL_HEADER",
    "Edge",
    "caller_and_chat_of",
    "caller_of",
    "edge_of",
    "emptied_on_errors",
    "hand_body",
    "own_chat_of",
    "read_body",
    "read_json",
    "release_body",
]

PRINCIPAL_HEADER = b"threadcast-principal"
"""A header with which a client names the principal that it expects to be (PROTOCOL §1)."""

BODY_MIN_BYTES_PER_SECOND = 32_768
"""The minimum average speed of an upload: 256 kbit/s, a poor mobile uplink. A large image may take minutes, but a body
of a few bytes must arrive within the timeout."""


@dataclass(frozen=True, slots=True)
class Edge:
    """The dependencies of the endpoints, built once by `wiring/web_half.py`; the application's state holds them."""

    store: Store
    hub: Hub
    feeds: Feeds
    auth: Authenticator
    metrics: Metrics
    readiness: Readiness
    profiles: Profiles
    providers: Models
    worker_limits: WorkerLimits
    mcp: McpContents
    quotas: Quotas
    storage: StorageBounds
    bodies: Bodies
    imports: Bodies
    answers: Answers
    limits: Limits
    credential_cache: CredentialCache | None = None
    """None if no tool needs the callers' credentials; the server then keeps no credentials."""
    shares_port: bool = False
    """Whether other processes answer on the same port, so that a request cannot choose its process."""
    frame_origins: Sequence[str] = ()
    """Origins whose pages may frame the page and give it context; "self" is the server's own origin."""
    endpoints: Mapping[str, EndpointRule] = field(default_factory=dict)
    """The configuration of the one-shot endpoints, by path."""
    doors: Doors = field(default_factory=Doors)
    public_url: str = ""
    """`server.public_url`: the address under which browsers reach this server; '' if none is set."""

    def principal(self, scope: Scope) -> Principal:
        """Return the principal that sent the request.

        Raises:
            Unauthorized: the server does not know the caller, or the request names another principal.
        """
        sent = dict(scope["headers"])  # the guard refuses a second header of either name
        authorization = sent.get(b"authorization")
        principal = self.auth.authenticate(None if authorization is None else authorization.decode("latin-1"))
        named = sent.get(PRINCIPAL_HEADER)
        if named and named.decode("latin-1") != principal.id:
            raise AnotherUser
        return principal

    def forwarded(self, scope: Scope) -> str | None:
        """Return the credential that the request carries for tools (TOOL-7); None if it carries no credential, or if no
        tool may use a credential. Raises BadRequest for a value that is too long, or is a token of this server."""
        return None if self.credential_cache is None else self.credential_cache.value_of(Headers(scope=scope))

    async def own(self, chat_id: str, principal: Principal) -> ChatMeta:
        """Return the meta of the caller's own chat. An unknown chat, a deleted chat and another principal's chat get
        the same error (AUTH-2).

        Raises:
            NotFound: the caller has no such chat.
        """
        meta = await self.store.meta(chat_id)
        if meta is None or meta.deleted or meta.owner != principal.id:
            raise NotFound("no such chat")
        return meta

    async def decidable(self, chat_id: str, principal: Principal) -> ChatMeta:
        """Return the meta of the caller's own chat, or of a chat of an owner for whom the caller approves calls
        (`approves_for`). Raises NotFound like `own`, and does the same work before."""
        meta = await self.store.meta(chat_id)
        if meta is None or meta.deleted or meta.owner not in (principal.id, *principal.approves_for):
            raise NotFound("no such chat")
        return meta

    async def own_or_new(self, chat_id: str, principal: Principal) -> ChatMeta | None:
        """Return the meta of the caller's own chat; None if no chat has this id, so that the caller may create the
        chat.

        Raises:
            IdTaken: the chat belongs to another principal, or is a deleted chat of another principal.
            NotFound: the caller has deleted the chat.
        """
        meta = await self.store.meta(chat_id)
        if meta is not None and meta.owner != principal.id:
            raise IdTaken
        if meta is not None and meta.deleted:
            raise NotFound("no such chat")
        return meta

    async def delete(self, chat_id: str, owner: str) -> bool:
        """Delete a chat and the chats that its tools began (`delete_family`), and let requests to this process know at
        once. Returns False when the chat is unknown or belongs to another user. Raises Unavailable."""
        try:
            return await delete_family(self.store, chat_id, owner)
        finally:
            self.hub.deleted()

    async def is_hidden(self, chat_id: str, principal: Principal) -> bool:
        """Return whether the id belongs to another principal's chat. The caller must not notice that the chat exists,
        so it gets the same stream as for an unknown chat.

        Raises:
            NotFound: the caller has deleted the chat.
        """
        if self.hub.is_lately_own(chat_id, principal.id):
            return False
        asked_at = time.monotonic()
        try:
            meta = await self.own_or_new(chat_id, principal)
        except IdTaken:
            return True
        if meta is not None:
            self.hub.found(chat_id, asked_at)
        return False


def edge_of(request: Request) -> Edge:
    """Return the dependencies of the application that serves `request`."""
    edge: Edge = request.app.state.edge
    return edge


def caller_of(request: Request) -> tuple[Edge, Principal]:
    """Return the dependencies, and the principal that sent `request`. Raises Unauthorized."""
    edge = edge_of(request)
    principal = edge.principal(request.scope)
    request.state.principal_id = principal.id
    return edge, principal


def caller_and_chat_of(request: Request) -> tuple[Edge, Principal, str]:
    """Return the dependencies, the principal that sent `request`, and the chat id in its path. Raises Unauthorized, and
    BadRequest for a malformed id."""
    edge, principal = caller_of(request)
    return edge, principal, check_chat_id(request.path_params["chat_id"])


async def own_chat_of(request: Request) -> tuple[Edge, ChatMeta]:
    """Return the dependencies, and the meta of the caller's own chat that the request's path names. Raises
    Unauthorized, BadRequest, and NotFound as `Edge.own`."""
    edge, principal, chat_id = caller_and_chat_of(request)
    return edge, await edge.own(chat_id, principal)


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body of the request. Raises what `hand_body` raises; a body above `max_bytes` is never buffered."""
    body = bytearray()

    async def take(chunk: bytes) -> None:
        body.extend(chunk)

    with emptied_on_errors(body):
        await hand_body(request, max_bytes, take)
    return bytes(body)


async def read_json(request: Request, max_bytes: int) -> bytes:
    """Return the body of the request, which the caller decodes as JSON.

    Raises:
        TooLarge: the body is above `max_bytes`, or has more than `limits.body_max_values` values.
        BodyTooSlow: see `hand_body`.
    """
    body = bytearray()
    bounds = JsonBounds(edge_of(request).limits.body_max_values)

    async def take(chunk: bytes) -> None:
        body.extend(chunk)
        if not bounds.is_within(chunk):
            for _ in bounds.check(body):
                await checkpoint()

    with emptied_on_errors(body):
        await hand_body(request, max_bytes, take)
    return bytes(body)


@contextmanager
def emptied_on_errors(body: bytearray) -> Iterator[None]:
    """Free a body that is refused. Otherwise the error of the refusal would keep the function's frame, and with it the
    body, until the next garbage collection: 60 refused bodies held 150 MB."""
    try:
        yield
    except BaseException:
        body.clear()
        raise


def release_body(request: Request) -> None:
    """Stop counting the request's body, because its content is stored. If a request never calls this function, its body
    counts until the request ends (`ErrorBoundary`)."""
    room: BodyRoom | None = request.scope.pop(BODY_ROOM, None)
    if room is not None:
        room.give_back()


async def hand_body(
    request: Request, max_bytes: int, take: Callable[[bytes], Awaitable[None]], bodies: Bodies | None = None
) -> None:
    """Pass the pieces of the body to `take` as they arrive. `bodies` counts the body until `release_body` or the end of
    the request; the default is the counter of bodies in memory.

    Raises:
        RateLimited, Unavailable: the caller, or all callers together, send too many bytes at the same time.
        BadRequest: the body is compressed.
        TooLarge: the body, or the Content-Length that announces it, is above `max_bytes`.
        BodyTooSlow: the body did not arrive within the timeout and one second for each `BODY_MIN_BYTES_PER_SECOND`
        bytes received.
    """
    coding = request.headers.get("content-encoding", "identity")
    if coding != "identity":
        raise BadRequest(f"the body is compressed (Content-Encoding: {coding[:50]}); send it uncompressed")
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > max_bytes:
        raise TooLarge(f"the body is larger than {max_bytes} bytes")
    edge = edge_of(request)
    room = BodyRoom(edge.bodies if bodies is None else bodies, request.state.principal_id)
    request.scope[BODY_ROOM] = room
    timeout_seconds = edge.limits.body_timeout_seconds
    size = 0
    given_seconds = timeout_seconds
    if told.isdigit():
        room.reserve(int(told))
    try:
        async with Deadline(timeout_seconds) as retry_policy:
            async for chunk in request.stream():
                size += len(chunk)
                if size > max_bytes:
                    raise TooLarge(f"the body is larger than {max_bytes} bytes")
                room.take(len(chunk))
                await take(chunk)
                given_seconds = timeout_seconds + size / BODY_MIN_BYTES_PER_SECOND
                retry_policy.allow(given_seconds)
    except TimeoutError:
        raise BodyTooSlow(f"the body did not arrive within {round(given_seconds, 1):g} s") from None
