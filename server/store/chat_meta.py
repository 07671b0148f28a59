"""The fields of a chat's `meta` hash and what they mean as a `ChatMeta`. `lists.py` and `memory.py` read with it."""

from collections.abc import Sequence

from protocol.errors import Internal
from server.store.port import AppendRequest, ChatMeta

__all__ = ["META_FIELDS", "check_owner", "read_meta"]

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
)


def read_meta(chat_id: str, values: Sequence[str | None]) -> ChatMeta | None:
    """`values` in the order of META_FIELDS. None: there is no such chat."""
    owner, title, state, model, mode, message_count, queue, created_at, last_active, deleted = values
    if owner is None:
        return None
    return ChatMeta(
        chat_id=chat_id,
        owner=owner,
        title=title or "",
        state=state or "idle",
        model=model or "",
        mode=mode or "",
        message_count=int(message_count or 0),
        queue=int(queue or 0),
        created_at=int(created_at or 0),
        last_active=int(last_active or 0),
        deleted=deleted is not None,
    )


def check_owner(request: AppendRequest) -> None:
    """The index of chats is the owner's: without a name the chat would be in nobody's list, and nobody would notice.

    Raises:
        Internal: `meta` without `owner`.
    """
    if request.meta and not request.owner:
        raise Internal(f"an append to {request.chat_id} changes its meta and does not name its owner")
