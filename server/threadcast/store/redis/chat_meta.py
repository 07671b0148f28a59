"""Converts the fields of a chat's `meta` hash into a `ChatMeta`, for `lists.py` and the in-memory store."""

from collections.abc import Sequence

from msgspec.structs import replace

from threadcast.store.ports import AppendRequest, ChatMeta, ChatPage, ListCursor
from threadcast_protocol.wire.errors import Internal

__all__ = ["META_FIELDS", "check_owner", "page_of", "read_meta"]

META_FIELDS = (
    "owner",
    "title",
    "state",
    "model",
    "mode",
    "message_count",
    "queue",
    "created_at",
    "last_active",
    "deleted",
    "parent",
    "floor",
    "died",
)


def read_meta(chat_id: str, values: Sequence[str | None]) -> ChatMeta | None:
    """Return the record made from `values`, which are in the order of META_FIELDS. Returns None when there is no such
    chat. Raises Internal when the values were not written by this store."""
    owner, title, state, model, mode, message_count, queue, created_at, last_active, deleted, parent, floor, died = (
        values
    )
    if owner is None:
        return None
    try:
        return ChatMeta(
            chat_id=chat_id,
            owner=owner,
            title=title or "",
            state=state or "idle",
            model=model or "",
            mode=mode or "",
            message_count=int(message_count or 0),
            queue=int(queue or 0),
            parent=parent or "",
            created_at=int(created_at or 0),
            last_active=int(last_active or 0),
            deleted=deleted is not None,
            deleted_at=int(died or deleted or 0),
            floor=int(floor or 0),
        )
    except ValueError as wrong:
        raise Internal(f"the meta of {chat_id} cannot be read: {wrong}") from None


def page_of(cursors: Sequence[ListCursor], found: Sequence[Sequence[str | None]], has_more: bool) -> ChatPage:
    """Make a page of a list from its cursors and from the metas, which were read after the cursors. Chats that were
    deleted in between are left out. A meta that changed in between gets the time of its cursor, so that a cursor made
    from this meta stays valid."""
    metas = [(cursor, read_meta(cursor.chat_id, values)) for cursor, values in zip(cursors, found, strict=True)]
    chats = [
        replace(meta, last_active=cursor.last_active) for cursor, meta in metas if meta is not None and not meta.deleted
    ]
    return ChatPage(chats, cursors[-1] if has_more else None)


def check_owner(request: AppendRequest) -> None:
    """Check that an append which changes the meta names the owner; without an owner the chat would be missing from
    every list.

    Raises:
        Internal: the request has `meta` but no `owner`.
    """
    if request.meta and not request.owner:
        raise Internal(f"an append to {request.chat_id} changes its meta and does not name its owner")
