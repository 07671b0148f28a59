"""`GET /v1/chats/subscribe`: streams the events of one chat or several (PROTOCOL §4).

The endpoint is an ASGI application, because the relay writes to the socket itself, in the task that receives an event
(`fanout/connection.py`). After the stream has begun, the endpoint's task only waits for the client to disconnect. The
relay determines the events that the reader missed, and sends these events.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, nullcontext
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple, NoReturn
from urllib.parse import parse_qs

import anyio.lowlevel
from msgspec import Meta
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from threadcast.api.edge import Edge
from threadcast.api.inlining import InliningSend
from threadcast.api.opening import OpenStream, goodbye, opened
from threadcast.api.operation import BAD_ID, UNAVAILABLE, Operation, Parameter, events
from threadcast.fanout.many_chats import ManyChats, name_taken
from threadcast.fanout.relay import Relay
from threadcast.fanout.subscriber import Subscriber
from threadcast.http.extensions import begin, has_left
from threadcast_protocol.framing.stream_ids import CHATS_MAX, parse_stream_ids
from threadcast_protocol.wire.errors import BadRequest, Unavailable
from threadcast_protocol.wire.http import ChatId
from threadcast_protocol.wire.ids import Id, Position, check_chat_id, check_id
from threadcast_protocol.wire.principal import Principal

__all__ = ["subscribe"]

FIELDS_MAX = 200
"""Maximum fields of a query: room for the chats of a stream and all other parameters."""

KEPT_QUERIES, KEPT_QUERY_BYTES = 256, 512
"""How many decoded queries a process keeps, and the maximum size of each, so that the readers that return to a chat
after a restart do not each decode the same query: decoding takes 7 % of the CPU of a join (`bench.join`)."""


class _Wish(NamedTuple):
    """The decoded request of a stream. `stream_position` is the SSE id from which the stream resumes, or ''.
    `stream_id` is '' for a stream without a name. `inlines` asks for data in place of references to blobs."""

    chat_ids: tuple[str, ...]
    stream_position: str
    stream_id: str
    has_presence: bool
    inlines: bool


_FROM = "A position after which the stream continues. An unusable position gets a snapshot, never an error."


@Operation(
    "GET",
    "/v1/chats/subscribe",
    "subscribe",
    "Watch one or more chats: for each a snapshot, then every event, until the client disconnects or the server stops.",
    tag="stream",
    parameters=[
        Parameter(
            "chat_id",
            Annotated[list[ChatId], Meta(max_length=CHATS_MAX)],
            "Repeated for each chat. Required unless the stream has a name.",
        ),
        Parameter("stream_id", Id, "A name for the stream, with which its chats can be changed while it is open."),
        Parameter("presence", Literal["1"], "Also send the transient frames `presence` and `typing`."),
        Parameter("from", str, _FROM),
        Parameter("Last-Event-ID", str, _FROM, "header"),
    ],
    answers={
        200: events(
            "WireEvent",
            "Blocks whose `data:` lines are WireEvent, the first a snapshot; with `presence=1` also TransientEvent.",
        )
    },
    errors=BAD_ID
    | {
        404: "`not_found`: the caller has deleted a chat. An unknown or foreign chat gets an empty snapshot.",
        429: "`rate_limited`: the caller has as many open streams, or chats on them, as it may have, or opens them too "
        "fast.",
    }
    | UNAVAILABLE,
    is_asgi=True,
)
async def subscribe(scope: Scope, receive: Receive, send: Send) -> None:
    """`GET /v1/chats/subscribe`: an ASGI application."""
    edge: Edge = scope["app"].state.edge
    principal = edge.principal(scope)
    wish = _wish_of(scope)
    run = _one if len(wish.chat_ids) == 1 and not wish.stream_id else _many
    await begin(scope, run(edge, principal, wish, scope, receive, send))


_NO_VISIT = nullcontext()


async def _one(
    edge: Edge, principal: Principal, wish: _Wish, scope: Scope, receive: Receive, send: Send
) -> AsyncGenerator[None]:
    """Run a stream of one chat, whose blocks all readers share; yields once, when the answer has begun. All code is in
    one generator, because each open stream keeps the frame of every running generator in memory."""
    (chat_id,) = wish.chat_ids
    with edge.hub.admitted(principal.id):
        is_hidden = await edge.is_hidden(chat_id, principal)
        if has_left(scope):
            await _dropped(receive)
        stream_position = None
        if wish.stream_position:
            stream_position = parse_stream_ids(wish.stream_position, wish.chat_ids).get(chat_id)
        async with edge.hub.relay(chat_id, is_hidden=is_hidden) as relay:
            with await _opened(edge, principal, wish, scope, send) as connection:
                subscriber = Subscriber(connection, relay, chat_id, is_one_of_many=False)
                visit = edge.hub.presence.visiting(chat_id, connection) if wish.has_presence else _NO_VISIT
                del scope, send, wish  # frees the request, and the wrappers of middleware around `send`
                with visit:
                    try:
                        yield
                        await _join(relay, subscriber, stream_position)
                        del stream_position
                        await goodbye(receive)
                    finally:
                        relay.leave(subscriber)


async def _join(relay: Relay, subscriber: Subscriber, stream_position: Position | None) -> None:
    try:
        await relay.join(subscriber, stream_position)
    except Unavailable:
        subscriber.end("store")


async def _many(
    edge: Edge, principal: Principal, wish: _Wish, scope: Scope, receive: Receive, send: Send
) -> AsyncGenerator[None]:
    """Run a stream of several chats; yields once, when the answer has begun. If the client named the stream, its chats
    can change while it is open. A task for each chat joins its relay."""
    with edge.hub.admitted(principal.id) as admission:
        admission.change(len(wish.chat_ids), len(wish.chat_ids))
        for chat_id in wish.chat_ids:
            await edge.is_hidden(chat_id, principal)  # raises NotFound; `ManyChats` asks whether to hide the chat
        if has_left(scope):
            await _dropped(receive)
        stream_positions = parse_stream_ids(wish.stream_position, wish.chat_ids)
        async with AsyncExitStack() as stack:
            name = None
            if wish.stream_id:  # before the answer begins, so that the client can change the stream at once
                name = await stack.enter_async_context(name_taken(edge.store, principal.id, wish.stream_id))
            connection = stack.enter_context(await _opened(edge, principal, wish, scope, send))
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            many = ManyChats(edge.hub, edge.store, connection, tasks, admission, has_presence=wish.has_presence)
            if name is not None:
                tasks.start_soon(many.obey, *name)
            for chat_id in wish.chat_ids:
                many.add(chat_id, stream_positions.get(chat_id))
            if not wish.chat_ids:
                connection.greet()
            del scope, send, wish
            yield
            await goodbye(receive)


async def _dropped(receive: Receive) -> NoReturn:
    """Raise ClientDisconnect for a client that has left. A flood of clients that disconnect at once then costs less,
    because no relay opens."""
    await goodbye(receive)
    raise ClientDisconnect


async def _opened(edge: Edge, principal: Principal, wish: _Wish, scope: Scope, send: Send) -> OpenStream:
    out = InliningSend(send, edge.store, principal.id) if wish.inlines else send
    return await opened(
        edge,
        principal,
        scope,
        out,
        name=wish.stream_id,
        changes_blocks=wish.inlines,
        chat_ids=wish.chat_ids,
        is_resumed=bool(wish.stream_position),
    )


def _wish_of(scope: Scope) -> _Wish:
    """Read the query and headers. A position that cannot be read is ignored (`parse_stream_ids`). Raises BadRequest."""
    query: bytes = scope["query_string"]
    wish = _kept_wish(query) if len(query) <= KEPT_QUERY_BYTES else _wish_of_query(query)
    # EventSource sends Last-Event-ID when it reconnects, so the header is newer than the position in the URL, which
    # stays the same.
    sent = dict(scope["headers"]).get(b"last-event-id")
    return wish._replace(stream_position=sent.decode("latin-1")) if sent else wish


def _wish_of_query(sent: bytes) -> _Wish:
    """Decode a query. Raises BadRequest."""
    try:
        query = parse_qs(sent.decode("latin-1"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise BadRequest(f"the query has more than {FIELDS_MAX} fields") from None
    chat_ids = tuple(dict.fromkeys(query.get("chat_id", [])))
    stream_id = query.get("stream_id", [""])[0]
    if stream_id:
        check_id(stream_id, "stream_id")
    elif not chat_ids:
        raise BadRequest("name the chat: ?chat_id=ID", path="/chat_id")
    if len(chat_ids) > CHATS_MAX:
        raise BadRequest(f"a stream holds at most {CHATS_MAX} chats; open another one", path="/chat_id")
    for chat_id in chat_ids:
        check_chat_id(chat_id)
    return _Wish(
        chat_ids,
        stream_position=query.get("from", [""])[0],
        stream_id=stream_id,
        has_presence=query.get("presence", [""])[0] == "1",
        inlines=query.get("blobs", [""])[0] == "inline",
    )


_kept_wish = lru_cache(KEPT_QUERIES)(_wish_of_query)  # keeps no query that raises
