"""`GET /v1/chats/feed`: streams the list of the caller's chats: a snapshot, then every change (PROTOCOL §4).

With the feed, a sidebar need not poll. A feed is not resumed: after a reconnect it begins with a snapshot, which is
small and complete. `seq` counts from the snapshot, so a reader notices each missed change. `compat/startup.py` shows
the same feed in another format, and `fanout/feeds.py` keeps its content.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

from starlette.types import Receive, Scope, Send

from threadcast.api.edge import Edge
from threadcast.api.listing import item_of
from threadcast.api.opening import goodbye, opened
from threadcast.api.operation import UNAVAILABLE, Operation, events
from threadcast.fanout.feeds import Feed
from threadcast.fanout.subscriber import Subscriber
from threadcast.http.extensions import begin
from threadcast.store.ports import ChatMeta
from threadcast_protocol.framing.codec import encode
from threadcast_protocol.wire.http import FeedItem
from threadcast_protocol.wire.principal import Principal

__all__ = ["ChatsView", "FeedView", "ViewReader", "feed", "sse_block", "stream_feed"]


class FeedView(Protocol):
    """Encodes a feed for one connection, with its numbering."""

    def snapshot(self) -> bytes:
        """Return the whole list as bytes to send, and restart the numbering."""

    def changes(self, changed: Sequence[ChatMeta], removed: Sequence[str]) -> bytes: ...


class ViewReader:
    """Connects a feed to one subscriber: encodes changes and snapshots with a view, and writes them."""

    subscriber: Subscriber

    def __init__(self, view: FeedView) -> None:
        self._view = view

    def snapshot(self) -> tuple[bytes, int]:
        return self._view.snapshot(), 0

    def tell(self, changed: Sequence[ChatMeta], removed: Sequence[str]) -> None:
        self.subscriber.write(self._view.changes(changed, removed))


async def stream_feed(scope: Scope, receive: Receive, send: Send, view_of: Callable[[Feed], FeedView]) -> None:
    """Send the caller's feed until the client disconnects or the server stops."""
    edge: Edge = scope["app"].state.edge
    await begin(scope, _run(edge, edge.principal(scope), scope, receive, send, view_of))


async def _run(
    edge: Edge, principal: Principal, scope: Scope, receive: Receive, send: Send, view_of: Callable[[Feed], FeedView]
) -> AsyncGenerator[None]:
    """Run the whole stream; yields once, when the answer has begun."""
    with edge.hub.admitted(principal.id):
        async with edge.feeds.feed(principal.id) as feed:
            with await opened(edge, principal, scope, send) as connection:
                reader = ViewReader(view_of(feed))
                reader.subscriber = Subscriber(connection, reader, "", is_one_of_many=False)
                feed.readers.add(reader)
                del scope, send  # frees the request, and the wrappers of middleware around `send`
                try:
                    yield
                    reader.subscriber.start_with_snapshot()
                    await goodbye(receive)
                finally:
                    feed.readers.discard(reader)


def sse_block(body: object) -> bytes:
    """Return an SSE block with one `data:` line; JSON escapes line ends inside strings."""
    return b"data: " + encode(body) + b"\n\n"


class ChatsView:
    """Encodes a feed in this server's own format: `feed_snapshot`, then `chat_updated` and `chat_removed`."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._seq = 0

    def snapshot(self) -> bytes:
        self._seq = 0
        chats = [item_of(chat) for chat in self._feed.chats]
        return sse_block(FeedItem(seq="0", type="feed_snapshot", chats=chats, has_more=self._feed.has_more))

    def changes(self, changed: Sequence[ChatMeta], removed: Sequence[str]) -> bytes:
        blocks = [sse_block(FeedItem(seq=self._next(), type="chat_updated", chat=item_of(chat))) for chat in changed]
        blocks += [sse_block(FeedItem(seq=self._next(), type="chat_removed", chat_id=chat_id)) for chat_id in removed]
        return b"".join(blocks)

    def _next(self) -> str:
        self._seq += 1
        return str(self._seq)


@Operation(
    "GET",
    "/v1/chats/feed",
    "feed",
    "Stream the list of the caller's chats: a snapshot, then every change. Each connection begins with a snapshot.",
    tag="stream",
    answers={200: events(FeedItem)},
    errors=UNAVAILABLE,
    is_asgi=True,
)
async def feed(scope: Scope, receive: Receive, send: Send) -> None:
    """`GET /v1/chats/feed`: an ASGI application."""
    await stream_feed(scope, receive, send, ChatsView)
