"""The list of the caller's chats with all its changes, for example for a sidebar (PROTOCOL §4).

Each connection begins with a snapshot of the list, so no change can be missed.
"""

from collections.abc import AsyncGenerator
from typing import TypeAlias

import anyio
import msgspec

from threadcast_client.backoff import Backoff
from threadcast_client.errors import TooLarge, Unauthorized, Unreachable
from threadcast_client.wire import Busy, Wire
from threadcast_protocol.framing.sse import EventFrame, FrameParser, RetryFrame

__all__ = ["ChatItem", "ChatListed", "ChatUnlisted", "FeedEvent", "FeedSnapshot", "follow_feed"]


class ChatItem(msgspec.Struct, frozen=True, kw_only=True):
    """A chat in the list (PROTOCOL §8). Times are Unix milliseconds."""

    id: str
    title: str = ""
    state: str = "idle"
    model: str = ""
    mode: str = ""
    message_count: int = 0
    queue_size: int = 0
    created_at: int | None = None
    last_active: int | None = None


class FeedSnapshot(msgspec.Struct, frozen=True, tag="feed_snapshot"):
    """The newest 200 chats, newest first. These chats replace the earlier list. `has_more`: the caller has older
    chats."""

    chats: list[ChatItem]
    has_more: bool = False


class ChatListed(msgspec.Struct, frozen=True, tag="chat_updated"):
    """A chat was added to the list or has changed."""

    chat: ChatItem


class ChatUnlisted(msgspec.Struct, frozen=True, tag="chat_removed"):
    """A chat was removed from the list."""

    chat_id: str


FeedEvent: TypeAlias = FeedSnapshot | ChatListed | ChatUnlisted


class _Head(msgspec.Struct, frozen=True):
    seq: str = ""
    type: str = ""


_heads = msgspec.json.Decoder(_Head)
_events = msgspec.json.Decoder(FeedSnapshot | ChatListed | ChatUnlisted)


async def follow_feed(wire: Wire) -> AsyncGenerator[FeedEvent, None]:
    """Yield a snapshot of the list and then every change, without end. Reconnects after errors.

    Raises:
        Refused: the server has refused the request. A client that awaits a sign-in retries after `Unauthorized`.
        Unreadable: the server is not a Threadcast server.
    """
    backoff = Backoff(wire.retry_policy)
    while True:
        asked_seconds = 0.0
        opened_at = anyio.current_time()
        parser, expected = FrameParser(), 0
        try:
            async with wire.stream("/v1/chats/feed") as chunks:
                async for chunk in chunks:
                    for frame in parser.feed(chunk):
                        # Only a `retry` at the very end asks the client to come back later (PROTOCOL §4).
                        asked_seconds = frame.milliseconds / 1000 if isinstance(frame, RetryFrame) else 0.0
                        if not isinstance(frame, EventFrame):
                            continue
                        head = _heads.decode(frame.data)
                        if head.type == "feed_snapshot":
                            expected = 0
                        if head.seq != str(expected):
                            raise Unreachable("an event was missed")
                        expected += 1
                        if head.type in ("feed_snapshot", "chat_updated", "chat_removed"):
                            yield _events.decode(frame.data)
        except Busy as wrong:
            asked_seconds = wrong.retry_seconds
        except Unauthorized:
            if not wire.awaits_sign_in:
                raise
            asked_seconds = wire.retry_policy.sign_in_seconds
        except (Unreachable, TooLarge, msgspec.MsgspecError):
            pass
        if anyio.current_time() - opened_at > wire.retry_policy.pause_max_seconds:
            backoff.reset()
        await wire.pause(backoff.pause(asked_seconds))
