"""GET /v1/chats/subscribe: one chat as Server-Sent Events; sends bytes, keeps alive, notices the goodbye (PROTOCOL §4).

A raw ASGI application, because its `send` is stepped by the relay without waking a task (`relay/subscriber.py`). The
task of the request only waits for the reader to leave. What the reader missed, and what is sent, is the relay's affair.
"""

import time
from urllib.parse import parse_qs

import anyio
import structlog
from starlette.types import Receive, Scope, Send

from protocol.errors import BadRequest, NotImplementedYet, Unavailable
from protocol.ids import Position, check_chat_id
from server.api.edge import Edge
from server.relay.subscriber import Subscriber

__all__ = ["ABORT", "subscribe"]

_log = structlog.get_logger()

ABORT = "threadcast.abort"
"""ASGI extension by which `app.py` lends us the way to drop a connection that takes no bytes."""

SSE_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
    (b"connection", b"keep-alive"),
]
"""NET-2. The third keeps nginx from collecting the stream."""


class _Subscribe:
    """The endpoint; Starlette takes an instance as an ASGI application of its own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        edge: Edge = scope["app"].state.edge
        principal = edge.principal(scope)
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        chat_id = _one_chat(query.get("chat_id", []))
        await edge.own_or_new(chat_id, principal)
        place = _place_of(scope, query)
        async with edge.hub.relay(chat_id) as relay, anyio.create_task_group() as tasks:
            await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
            subscriber = Subscriber(
                relay,
                send,  # type: ignore[arg-type]  # Starlette says Awaitable; every server's send is a coroutine function
                tasks,
                edge.metrics,
                principal_id=principal.id,
                abort=scope.get("extensions", {}).get(ABORT, _cannot_abort),
                buffer_max_bytes=edge.buffer_max_bytes,
                stall_seconds=edge.stall_seconds,
            )
            edge.metrics.subscribers_inflight.inc()
            begun_at = time.monotonic()
            try:
                try:
                    await relay.join(subscriber, place)
                except Unavailable:
                    subscriber.end("store")
                if edge.hub.is_closing:  # it began while this reader came in, and did not find it
                    subscriber.end("shutdown")
                while (await receive())["type"] != "http.disconnect":
                    pass
            finally:
                relay.leave(subscriber)
                edge.metrics.subscribers_inflight.dec()
                tasks.cancel_scope.cancel()
                reason = subscriber.ended or "left"
                edge.metrics.streams_ended.labels(reason).inc()
                duration_ms = int((time.monotonic() - begun_at) * 1000)
                _log.info(
                    "subscription.ended",
                    chat_id=chat_id,
                    reason=reason,
                    is_resumed=place is not None,
                    duration_ms=duration_ms,
                )


subscribe = _Subscribe()


def _cannot_abort() -> None:
    """Under another server than ours the connection is left to it."""


def _one_chat(chat_ids: list[str]) -> str:
    if not chat_ids:
        raise BadRequest("name the chat: ?chat_id=ID", path="/chat_id")
    if len(chat_ids) > 1:
        raise NotImplementedYet("this server streams one chat per connection", path="/chat_id")
    return check_chat_id(chat_ids[0])


def _place_of(scope: Scope, query: dict[str, list[str]]) -> Position | None:
    """Where to go on: Last-Event-ID, which EventSource sends by itself, before `?from=`. Malformed counts as none."""
    sent = dict(scope["headers"]).get(b"last-event-id", b"").decode("latin-1")
    text = sent or query.get("from", [""])[0]
    return Position.parse(text) if text else None
