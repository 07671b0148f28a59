"""A chat whose parent was deleted goes with it (PROTOCOL §1), however late its own beginning came.

A child begins by a letter that may be on its way while its parent is deleted, and nobody who deletes can find it then.
So its owner looks: after the entry with which it begins, whenever it is taken up, and when its last word finds the
parent gone. It looks after the entry and never before: see the rule of `server/store/family.py`. A parent that lives
again by an import is another chat: its floor tells.
"""

import structlog

from protocol.relations import Parent
from server.actor.patience import Patience
from server.actor.writer import Writer
from server.store.family import delete_family
from server.store.port import ChatMeta, Lost, Store

__all__ = ["end_orphan", "leave_no_orphan"]

_log = structlog.get_logger()


async def leave_no_orphan(store: Store, patience: Patience, writer: Writer) -> None:
    """Raises Lost: the parent was deleted, and this chat is now, too; or the store stayed away for a minute."""
    parent = writer.state.private.relations.parent
    if parent is None:
        return
    meta = await patience.until_answered(lambda: store.meta(parent.chat_id))
    if meta is not None and _was_deleted(parent, meta):
        await end_orphan(store, patience, writer)


async def end_orphan(store: Store, patience: Patience, writer: Writer) -> None:
    """Delete the chat and what is below it. Raises Lost, always."""
    chat_id = writer.state.chat_id
    await patience.until_answered(lambda: delete_family(store, chat_id, writer.owner))
    _log.info("chat.orphaned", chat_id=chat_id)
    raise Lost(chat_id)


def _was_deleted(parent: Parent, meta: ChatMeta) -> bool:
    """In the life in which it began its child, or after it. An entry of an older worker does not say which life."""
    return meta.deleted or 0 < parent.epoch <= meta.floor
