"""GET /v1/chats/subscribe: one chat or many as Server-Sent Events; opens, and notices the goodbye (PROTOCOL §4).

A raw ASGI application, because the relay writes to the socket where an event comes in (`relay/connection.py`). It
begins the stream and returns; the task of the request then only waits for the reader to leave (`opening.py`). What the
reader missed, and what is sent, is the relay's affair.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qs

import anyio.lowlevel
from anyio.abc import TaskGroup
from starlette.types import Receive, Scope, Send

from protocol.errors import BadRequest, Unavailable
from protocol.ids import Position, check_chat_id, check_id
from protocol.places import CHATS_MAX, parse_places
from protocol.principal import Principal
from server.api.edge import Edge
from server.api.inlining import InliningSend
from server.api.opening import begin, goodbye, opened
from server.relay.connection import Connection
from server.relay.many import ManyChats, name_taken
from server.relay.relay import Relay
from server.relay.subscriber import Subscriber

__all__ = ["subscribe"]

FIELDS_MAX = 200
"""Of a query: the chats of a stream, and what else may stand there."""


class _Wish(NamedTuple):
    """What the client asks for. `place` is an SSE id, or ''; `stream_id` too may be ''. `inlines`: data in place of
    references to blobs."""

    chat_ids: list[str]
    place: str
    stream_id: str
    has_presence: bool
    inlines: bool


_Opening: TypeAlias = AbstractAsyncContextManager[tuple[Connection, TaskGroup]]
_Join: TypeAlias = Callable[[], Awaitable[None]]


class _Subscribe:
    """The endpoint; Starlette takes an instance as an ASGI application of its own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        edge: Edge = scope["app"].state.edge
        principal = edge.principal(scope)
        wish = _wish_of(scope)
        await begin(scope, _stream(edge, principal, wish, scope, receive, send))


subscribe = _Subscribe()

_NO_VISIT = nullcontext()


async def _stream(
    edge: Edge, principal: Principal, wish: _Wish, scope: Scope, receive: Receive, send: Send
) -> AsyncGenerator[None]:
    """The whole stream; yields once, when it has begun."""
    with edge.hub.admitted(principal.id):
        for chat_id in wish.chat_ids:
            await edge.own_or_new(chat_id, principal)
        kind = _one if len(wish.chat_ids) == 1 and not wish.stream_id else _many
        stream = kind(edge, principal, wish, _open(edge, principal, wish, scope, send))
        del send  # with all that middleware put around it
        async with stream as join:
            yield
            await join()
            del join
            await goodbye(receive)


@asynccontextmanager
async def _one(edge: Edge, _: Principal, wish: _Wish, opening: _Opening) -> AsyncIterator[_Join]:
    """One chat, in blocks that all its readers share. What it yields joins it; a stream that ends meanwhile ends as any
    other."""
    (chat_id,) = wish.chat_ids
    place = parse_places(wish.place, wish.chat_ids).get(chat_id)
    async with edge.hub.relay(chat_id) as relay, opening as (connection, _tasks):
        visit = edge.hub.presence.visiting(chat_id, connection) if wish.has_presence else _NO_VISIT
        subscriber = Subscriber(connection, relay, chat_id, is_one_of_many=False)
        with visit:
            try:
                yield partial(_join, relay, subscriber, place)
            finally:
                relay.leave(subscriber)


async def _join(relay: Relay, subscriber: Subscriber, place: Position | None) -> None:
    try:
        await relay.join(subscriber, place)
    except Unavailable:
        subscriber.end("store")


@asynccontextmanager
async def _many(edge: Edge, principal: Principal, wish: _Wish, opening: _Opening) -> AsyncIterator[_Join]:
    """Any number of chats, which may change while it runs when the client named the stream. Each is joined by a task of
    its own."""
    places = parse_places(wish.place, wish.chat_ids)
    async with AsyncExitStack() as stack:
        name = None
        if wish.stream_id:  # before the answer begins, so that who has it can change the stream at once
            name = await stack.enter_async_context(name_taken(edge.store, principal.id, wish.stream_id))
        connection, tasks = await stack.enter_async_context(opening)
        many = ManyChats(edge.hub, edge.store, connection, tasks, has_presence=wish.has_presence)
        if name is not None:
            tasks.start_soon(many.obey, *name)
        for chat_id in wish.chat_ids:
            many.add(chat_id, places.get(chat_id))
        if not wish.chat_ids:
            connection.greet()
        yield anyio.lowlevel.checkpoint


def _open(edge: Edge, principal: Principal, wish: _Wish, scope: Scope, send: Send) -> _Opening:
    out = InliningSend(send, edge.store, principal.id) if wish.inlines else send
    return opened(
        edge,
        principal,
        scope,
        out,
        name=wish.stream_id,
        changes_blocks=wish.inlines,
        chat_ids=wish.chat_ids,
        is_resumed=bool(wish.place),
    )


def _wish_of(scope: Scope) -> _Wish:
    """Raises BadRequest. A place that cannot be read is none (`parse_places`)."""
    try:
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise BadRequest(f"the query has more than {FIELDS_MAX} fields") from None
    chat_ids = list(dict.fromkeys(query.get("chat_id", [])))
    stream_id = query.get("stream_id", [""])[0]
    if stream_id:
        check_id(stream_id, "stream_id")
    elif not chat_ids:
        raise BadRequest("name the chat: ?chat_id=ID", path="/chat_id")
    if len(chat_ids) > CHATS_MAX:
        raise BadRequest(f"a stream holds at most {CHATS_MAX} chats; open another one", path="/chat_id")
    for chat_id in chat_ids:
        check_chat_id(chat_id)
    # EventSource sends Last-Event-ID by itself, so it knows more than the address that it was opened with.
    sent = dict(scope["headers"]).get(b"last-event-id", b"").decode("latin-1")
    place = sent or query.get("from", [""])[0]
    return _Wish(
        chat_ids,
        place,
        stream_id,
        has_presence=query.get("presence", [""])[0] == "1",
        inlines=query.get("blobs", [""])[0] == "inline",
    )
