"""GET /v1/chats/feed: the caller's chats as Server-Sent Events; a snapshot, then every change (PROTOCOL §4).

A sidebar needs no polling with it. There is no resume: a reconnect begins with a snapshot, which is small, and says
everything. `stream_feed` is the endpoint's body, shared with the foreign sidebar (`foreign.py`); what the feed knows
stands in `relay/feeds.py`. The rule: `seq` counts from the snapshot, so a reader knows when it missed something.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from starlette.types import Receive, Scope, Send

from protocol.codec import encode
from protocol.messages import JsonObject
from server.api.edge import Edge
from server.api.listing import item_of
from server.api.opening import goodbye, opened
from server.relay.feeds import Feed
from server.relay.subscriber import Subscriber
from server.store.port import ChatMeta

__all__ = ["ChatsView", "FeedView", "ViewReader", "feed", "sse_block", "stream_feed"]


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
    with edge.hub.admitted(principal.id):
        async with edge.feeds.feed(principal.id) as feed, opened(edge, principal, scope, send) as (connection, _):
            reader = ViewReader(view_of(feed))
            reader.subscriber = Subscriber(connection, reader, "", is_one_of_many=False)
            feed.readers.add(reader)
            try:
                reader.subscriber.start_with_snapshot()
                await goodbye(receive)
            finally:
                feed.readers.discard(reader)


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
