"""The fields of a chat's `meta` hash and what they mean as a `ChatMeta`. `lists.py` and `memory.py` read with it."""

from collections.abc import Sequence

from msgspec.structs import replace

from protocol.errors import Internal
from server.store.port import AppendRequest, ChatMeta, ChatPage, Place

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
    """`values` in the order of META_FIELDS. None: there is no such chat. Raises Internal: somebody else wrote here."""
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


def page_of(places: Sequence[Place], found: Sequence[Sequence[str | None]], has_more: bool) -> ChatPage:
    """A page of a list from its places and the metas read after them. What was deleted in between is left out; a meta
    that moved on meanwhile keeps the time of its place, so that a cursor made from it does."""
    metas = [(place, read_meta(place.chat_id, values)) for place, values in zip(places, found, strict=True)]
    chats = [
        replace(meta, last_active=place.last_active) for place, meta in metas if meta is not None and not meta.deleted
    ]
    return ChatPage(chats, places[-1] if has_more else None)


def check_owner(request: AppendRequest) -> None:
    """The index of chats is the owner's: without a name the chat would be in nobody's list, and nobody would notice.

    Raises:
        Internal: `meta` without `owner`.
    """
    if request.meta and not request.owner:
        raise Internal(f"an append to {request.chat_id} changes its meta and does not name its owner")
