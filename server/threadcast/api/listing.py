"""Reads a page of the caller's chats, for `GET /v1/chats` and `GET /v1/trajectories`.

A cursor is the list position of the last chat that was read. So a page can end anywhere, also between chats of the same
millisecond, and the next page begins directly after that chat.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from starlette.requests import Request

from threadcast.store.ports import ChatMeta, Index, ListCursor
from threadcast_protocol.wire.errors import BadRequest
from threadcast_protocol.wire.http import ChatSummary
from threadcast_protocol.wire.ids import check_id

__all__ = [
    "LIST_DEFAULT",
    "LIST_MAX",
    "LOOKED_AT_MAX",
    "SEARCH_MAX_CHARACTERS",
    "Found",
    "cursor_in",
    "cursor_of",
    "find_chats",
    "item_of",
    "read_cursor",
    "whole_number",
]

LIST_DEFAULT, LIST_MAX = 50, 200
"""The number of chats on a page: the default and the maximum."""

LOOKED_AT_MAX = 2_000
"""Maximum number of chats that one request with a filter looks at: ten round trips to the store. If fewer chats match
than the page wants, the page is short, and its `next_cursor` continues after the last chat that was looked at."""

SEARCH_MAX_CHARACTERS = 200
"""Maximum characters of `q`, equal to the maximum of a title, since no title contains a longer text."""

_STEP = 200

_CURSOR = re.compile("([0-9]{1,16}):(.{1,128})", re.DOTALL)


class Found(NamedTuple):
    """A page of chats. `next_cursor` is None if and only if no further chat could match."""

    chats: list[ChatMeta]
    next_cursor: str | None


async def find_chats(
    store: Index, owner: str, limit: int, after: ListCursor | None, wanted: Callable[[ChatMeta], bool] | None = None
) -> Found:
    """Return at most `limit` of the owner's chats that are `wanted`, in the list's order. `after` is the cursor of the
    previous page, None for the first page."""
    if wanted is None:
        page = await store.list_chats(owner, limit, after)
        return Found(page.chats, page.next and cursor_of(page.next))
    found: list[ChatMeta] = []
    for _ in range(LOOKED_AT_MAX // _STEP):
        page = await store.list_chats(owner, _STEP, after)
        for chat in filter(wanted, page.chats):
            if len(found) == limit:
                return Found(found, cursor_of(ListCursor(found[-1].last_active, found[-1].chat_id)))
            found.append(chat)
        after = page.next
        if after is None:
            return Found(found, None)
    return Found(found, after and cursor_of(after))


def item_of(chat: ChatMeta) -> ChatSummary:
    """Return a chat as lists and feeds show it."""
    return ChatSummary(
        id=chat.chat_id,
        title=chat.title or "New Chat",
        state=chat.state,
        model=chat.model,
        mode=chat.mode,
        message_count=chat.message_count,
        queue_size=chat.queue,
        created_at=chat.created_at,
        last_active=chat.last_active,
    )


def cursor_of(cursor: ListCursor) -> str:
    return f"{cursor.last_active}:{cursor.chat_id}"


def read_cursor(request: Request) -> ListCursor | None:
    """Raises BadRequest."""
    text = request.query_params.get("cursor")
    return cursor_in(text) if text else None


def cursor_in(text: str) -> ListCursor:
    """Return the cursor that `cursor_of` has written. Raises BadRequest."""
    match = _CURSOR.fullmatch(text)
    try:
        if match is not None:
            return ListCursor(int(match[1]), check_id(match[2], "cursor"))
    except BadRequest:
        pass
    raise BadRequest("cursor must be the next_cursor of the page before", path="/cursor")


def whole_number(request: Request, name: str, default: int, least: int, most: int) -> int:
    """Return a query parameter that is a whole number from `least` to `most`. Raises BadRequest."""
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    if not re.fullmatch("[0-9]{1,16}", text) or not least <= int(text) <= most:
        raise BadRequest(f"{name} must be a whole number from {least} to {most}", path=f"/{name}")
    return int(text)
