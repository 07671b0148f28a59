"""GET /v1/chats/feed: the caller's chats as Server-Sent Events; a snapshot, then every change (PROTOCOL §4).

A sidebar needs no polling with it. There is no resume: a reconnect begins with a snapshot, which is small, and says
everything. `stream_feed` is the endpoint's body, shared with the foreign sidebar (`foreign.py`); what the feed knows
stands in `relay/feeds.py`. The rule: `seq` counts from the snapshot, so a reader knows when it missed something.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import anyio
import structlog
from starlette.types import Receive, Scope, Send

from protocol.codec import encode
from protocol.messages import JsonObject
from server.api.edge import Edge
from server.api.listing import item_of
from server.api.stream import ABORT, SSE_HEADERS
from server.relay.connection import Connection
from server.relay.feeds import Feed
from server.relay.subscriber import Subscriber
from server.store.port import ChatMeta

__all__ = ["ChatsView", "FeedView", "ViewReader", "feed", "sse_block", "stream_feed"]

_log = structlog.get_logger()


class FeedView(Protocol):
    """How one connection shows a feed: ready bytes, and what is numbered in them."""

    def snapshot(self) -> bytes:
        """All of it, as it now is; numbering begins again."""

    def changes(self, changed: Sequence[ChatMeta], removed: Sequence[str]) -> bytes: ...


class ViewReader:
    """A view on its connection: the source of its subscriber's snapshots, and a reader of the feed."""

    subscriber: Subscriber

    def __init__(self, view: FeedView) -> None:
        self._view = view

    def snapshot(self) -> tuple[bytes, int]:
        return self._view.snapshot(), 0

    def tell(self, changed: Sequence[ChatMeta], removed: Sequence[str]) -> None:
        self.subscriber.write(self._view.changes(changed, removed))


async def stream_feed(scope: Scope, receive: Receive, send: Send, view_of: Callable[[Feed], FeedView]) -> None:
    """Serve the caller's feed until either side leaves."""
    edge: Edge = scope["app"].state.edge
    principal = edge.principal(scope)
    async with edge.feeds.feed(principal.id) as feed, anyio.create_task_group() as tasks:
        await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        reader = ViewReader(view_of(feed))
        connection = Connection(
            send,  # type: ignore[arg-type]  # Starlette says Awaitable; every server's send is a coroutine function
            tasks,
            edge.metrics,
            principal_id=principal.id,
            abort=scope.get("extensions", {}).get(ABORT, _cannot_abort),
            buffer_max_bytes=edge.buffer_max_bytes,
            stall_seconds=edge.stall_seconds,
        )
        reader.subscriber = Subscriber(connection, reader, "", is_one_of_many=False)
        edge.metrics.subscribers_inflight.inc()
        begun_at = time.monotonic()
        try:
            feed.readers.add(reader)
            reader.subscriber.start_with_snapshot()
            if edge.feeds.is_closing:  # it began while this reader came in, and did not find it
                reader.subscriber.end("shutdown")
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            feed.readers.discard(reader)
            edge.metrics.subscribers_inflight.dec()
            tasks.cancel_scope.cancel()
            reason = connection.ended or "left"
            edge.metrics.streams_ended.labels(reason).inc()
            duration_ms = int((time.monotonic() - begun_at) * 1000)
            _log.info("feed.ended", path=scope["path"], reason=reason, duration_ms=duration_ms)


def sse_block(body: JsonObject) -> bytes:
    """One data line; JSON escapes line ends inside strings."""
    return b"data: " + encode(body) + b"\n\n"


class ChatsView:
    """Our own: `feed_snapshot`, then `chat_updated` and `chat_removed`."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._seq = 0

    def snapshot(self) -> bytes:
        self._seq = 0
        chats = [item_of(chat) for chat in self._feed.chats]
        return sse_block({"seq": "0", "type": "feed_snapshot", "chats": chats, "has_more": self._feed.has_more})

    def changes(self, changed: Sequence[ChatMeta], removed: Sequence[str]) -> bytes:
        bodies: list[JsonObject] = [{"type": "chat_updated", "chat": item_of(chat)} for chat in changed]
        bodies += [{"type": "chat_removed", "chat_id": chat_id} for chat_id in removed]
        blocks = [sse_block({"seq": str(self._seq + number), **body}) for number, body in enumerate(bodies, start=1)]
        self._seq += len(blocks)
        return b"".join(blocks)


class _Feed:
    """The endpoint; Starlette takes an instance as an ASGI application of its own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await stream_feed(scope, receive, send, ChatsView)


feed = _Feed()


def _cannot_abort() -> None:
    """Under another server than ours the connection is left to it."""
