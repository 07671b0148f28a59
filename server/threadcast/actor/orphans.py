"""Deletes a chat whose parent was deleted (PROTOCOL §1), even if the child was created late.

The message that begins a child may be under way while its parent is deleted; then the deletion cannot find the child.
So the child's owner checks the parent: after the child's first entry, at each new ownership, and when the store refuses
the child's report because the parent does not exist. The check is made after the entry, never before it;
`store/families.py` gives the reason. A parent that was imported again after its deletion counts as another chat; its
`floor` shows the deletion.
"""

import structlog

from threadcast.actor.retry_policy import RetryPolicy
from threadcast.actor.writer import Writer
from threadcast.chat.relations import Parent
from threadcast.store.families import delete_family
from threadcast.store.ports import ChatMeta, Index, Lost

__all__ = ["end_orphan", "leave_no_orphan"]

_log = structlog.get_logger()


async def leave_no_orphan(store: Index, retry_policy: RetryPolicy, writer: Writer) -> None:
    """Delete the chat if its parent was deleted. Raises Lost: the chat was deleted, or the store did not answer for a
    minute."""
    parent = writer.state.private.relations.parent
    if parent is None:
        return
    meta = await retry_policy.until_answered(lambda: store.meta(parent.chat_id))
    if meta is not None and _was_deleted(parent, meta):
        await end_orphan(store, retry_policy, writer)


async def end_orphan(store: Index, retry_policy: RetryPolicy, writer: Writer) -> None:
    """Delete the chat and its sub-chats. Always raises Lost."""
    chat_id = writer.state.chat_id
    await retry_policy.until_answered(lambda: delete_family(store, chat_id, writer.owner))
    _log.info("chat.orphaned", chat_id=chat_id)
    raise Lost(chat_id)


def _was_deleted(parent: Parent, meta: ChatMeta) -> bool:
    """Return whether the parent was deleted after the parent had begun the child. Entries of older workers do not
    record the parent's epoch; then `parent.epoch` is 0."""
    return meta.deleted or 0 < parent.epoch <= meta.floor
