"""A page of the caller's chats: order, cursor, filters; what `GET /v1/chats` and its foreign twin have in common.

It knows query parameters and metas, no routes. The rule: a cursor is the place of the last chat that was looked at, so
that a page ends anywhere, also between chats of the same millisecond, and the next one goes on right behind it.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from starlette.requests import Request

from protocol.errors import BadRequest
from protocol.ids import check_id
from protocol.messages import JsonObject
from server.store.port import ChatMeta, Place, Store

__all__ = [
    "LIST_DEFAULT",
    "LIST_MAX",
    "LOOKED_AT_MAX",
    "SEARCH_MAX_CHARACTERS",
    "Found",
    "cursor_of",
    "find_chats",
    "item_of",
    "read_cursor",
    "whole_number",
]

LIST_DEFAULT, LIST_MAX = 50, 200
"""Chats on a page."""

LOOKED_AT_MAX = 2_000
"""Chats that one filtered request looks at: ten round trips to the store. Where fewer match than the page wants, the
page is short, and its `next_cursor` goes on behind the last one looked at."""

SEARCH_MAX_CHARACTERS = 200
"""Of `q`: as long as a title may be; more cannot be found."""

_STEP = 200

_CURSOR = re.compile("([0-9]{1,16}):(.{1,128})", re.DOTALL)


class Found(NamedTuple):
    """`next_cursor` is None iff nothing is left to look at, or the rest was looked at and nothing matches."""

    chats: list[ChatMeta]
    next_cursor: str | None


async def find_chats(
    store: Store, owner: str, limit: int, after: Place | None, wanted: Callable[[ChatMeta], bool] | None = None
) -> Found:
    """At most `limit` of the owner's chats after that place that are `wanted`, in the list's order."""
    if wanted is None:
        page = await store.list_chats(owner, limit, after)
        return Found(page.chats, page.next and cursor_of(page.next))
    found: list[ChatMeta] = []
    for _ in range(LOOKED_AT_MAX // _STEP):
        page = await store.list_chats(owner, _STEP, after)
        for chat in filter(wanted, page.chats):
            if len(found) == limit:
                return Found(found, cursor_of(Place(found[-1].last_active, found[-1].chat_id)))
            found.append(chat)
        after = page.next
        if after is None:
            return Found(found, None)
    return Found(found, after and cursor_of(after))


def item_of(chat: ChatMeta) -> JsonObject:
    """A chat as lists and feeds show it. Times are Unix milliseconds."""
    return {
        "id": chat.chat_id,
        "title": chat.title or "New Chat",
        "state": chat.state,
        "model": chat.model,
        "mode": chat.mode,
        "message_count": chat.message_count,
        "queue_size": chat.queue,
        "created_at": chat.created_at,
        "last_active": chat.last_active,
    }


def cursor_of(place: Place) -> str:
    return f"{place.last_active}:{place.chat_id}"


def read_cursor(request: Request) -> Place | None:
    """Raises BadRequest."""
    text = request.query_params.get("cursor")
    if not text:
        return None
    match = _CURSOR.fullmatch(text)
    try:
        if match is not None:
            return Place(int(match[1]), check_id(match[2], "cursor"))
    except BadRequest:
        pass
    raise BadRequest("cursor must be the next_cursor of the page before", path="/cursor")


def whole_number(request: Request, name: str, default: int, least: int, most: int) -> int:
    """A query parameter. Raises BadRequest."""
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    if not re.fullmatch("[0-9]{1,16}", text) or not least <= int(text) <= most:
        raise BadRequest(f"{name} must be a whole number from {least} to {most}", path=f"/{name}")
    return int(text)
