"""The caller's chats as a list that keeps itself up to date, for a sidebar that never polls (PROTOCOL §4).

A reconnect begins with a snapshot, so nothing is resumed and nothing can be missed.
"""

from collections.abc import AsyncGenerator
from typing import TypeAlias

import anyio
import msgspec

from protocol.sse import EventFrame, FrameParser, RetryFrame
from threadcast.backoff import Backoff
from threadcast.errors import TooLarge, Unreachable
from threadcast.wire import Busy, Wire

__all__ = ["ChatItem", "ChatListed", "ChatUnlisted", "FeedEvent", "FeedSnapshot", "follow_feed"]


class ChatItem(msgspec.Struct, frozen=True, kw_only=True):
    """A chat in a list (PROTOCOL §8). Times are Unix milliseconds."""

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
    """The newest 200, newest first; it replaces what was known. `has_more`: there are older ones."""

    chats: list[ChatItem]
    has_more: bool = False


class ChatListed(msgspec.Struct, frozen=True, tag="chat_updated"):
    """A chat is new, or as it now is."""

    chat: ChatItem


class ChatUnlisted(msgspec.Struct, frozen=True, tag="chat_removed"):
    chat_id: str


FeedEvent: TypeAlias = FeedSnapshot | ChatListed | ChatUnlisted


class _Head(msgspec.Struct, frozen=True):
    seq: str = ""
    type: str = ""


_heads = msgspec.json.Decoder(_Head)
_events = msgspec.json.Decoder(FeedSnapshot | ChatListed | ChatUnlisted)


async def follow_feed(wire: Wire) -> AsyncGenerator[FeedEvent, None]:
    """Every change, for as long as somebody iterates.

    Raises:
        Refused: the server does not give it.
        Unreadable: who answers is no Threadcast server.
    """
    backoff = Backoff(wire.patience)
    while True:
        asked_seconds = 0.0
        opened_at = anyio.current_time()
        parser, expected = FrameParser(), 0
        try:
            async with wire.stream("/v1/chats/feed") as chunks:
                async for chunk in chunks:
                    for frame in parser.feed(chunk):
                        # Only a `retry` that nothing follows is a goodbye (PROTOCOL §4).
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
        except (Unreachable, TooLarge, msgspec.MsgspecError):
            pass
        if anyio.current_time() - opened_at > wire.patience.pause_max_seconds:
            backoff.reset()
        await anyio.sleep(backoff.pause(asked_seconds))
