"""Defines the index of chats: their records, the lists of these records, and the feeds that announce changes."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

import msgspec

from threadcast.store.ports.log import Messages

__all__ = ["ChatMeta", "ChatPage", "Index", "ListCursor", "list_owner_of"]


class ChatMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The index record of a chat, read by lists, feeds and refusals. Times are Unix milliseconds. `deleted_at` is the
    time of the last delete, and is kept when the chat is created again. Epochs up to `floor` belong to deleted chats
    with this id."""

    chat_id: str
    owner: str
    title: str = ""
    state: str = "idle"
    model: str = ""
    mode: str = ""
    message_count: int = 0
    queue: int = 0
    parent: str = ""
    created_at: int = 0
    last_active: int = 0
    deleted: bool = False
    deleted_at: int = 0
    floor: int = 0


def list_owner_of(owner: str, parent: str) -> str:
    """Return the name under which a chat is listed: its owner or, if a tool of another chat created the chat, a name
    made from the owner and the parent. `list_chats` and `count_chats` accept that name in place of an owner. No feed
    announces changes of a chat that has a parent."""
    return f"{owner}\n{parent}" if parent else owner


class ListCursor(NamedTuple):
    """The position of a chat in its owner's list. The list begins with the newest chat; of chats with equal times, the
    greater id comes first."""

    last_active: int
    chat_id: str


class ChatPage(msgspec.Struct, frozen=True):
    """A page of an owner's list, in the order of the list. `next` is the cursor of the following page, None at the
    end."""

    chats: list[ChatMeta]
    next: ListCursor | None


class Index(Protocol):
    """Keeps the index record of each chat, and the list of each owner's chats."""

    async def meta(self, chat_id: str) -> ChatMeta | None:
        """Return the chat's index record, None for a chat that never existed; `deleted` is set for a deleted chat."""

    async def list_chats(self, owner: str, limit: int, after: ListCursor | None = None) -> ChatPage:
        """Return the next `limit` chats after the cursor `after`. If a chat is deleted during the call, the page has
        one chat fewer, and the list does not end early. Each chat's `last_active` is the time by which the list is
        sorted."""

    async def listed(self, owner: str, chat_ids: Sequence[str]) -> list[ChatMeta]:
        """Return the present records of the given chats, leaving out chats that are not in the owner's list."""

    async def count_chats(self, owner: str) -> int: ...

    async def delete(self, chat_id: str, owner: str, nonce: str) -> bool:
        """Delete the chat. Returns True when the chat is deleted (also if it was deleted before), False when the chat
        is unknown or belongs to another user."""

    def follow_feed(
        self, owner: str, woken: Callable[[], None] | None = None
    ) -> AbstractAsyncContextManager[Messages[str | None]]:
        """Iterate over the ids of the owner's chats whose index record has changed or that were deleted. None means
        that the subscription was rebuilt and ids may be missing. Entering the context manager waits until the
        subscription is confirmed. `woken` is called for each id or None that waits to be read."""
