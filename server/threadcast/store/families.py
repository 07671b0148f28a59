"""Deletes a chat and, at any depth, the chats that its tools created (PROTOCOL §1).

A chat and its children may have different slots, so they cannot be deleted in one atomic step. The children are listed
under the chat (`ports.list_owner_of`). A child is in this list from its first entry on. After that entry, the owner of
the child checks whether the parent still exists (`actor/orphans.py`). After the parent is deleted, the list is read
again, and the children in it are deleted. So if a delete and the creation of a child overlap, either the delete finds
the child, or the child's owner finds that the parent is deleted.
"""

import secrets

from threadcast.store.ports import Index, list_owner_of

__all__ = ["PAGE_MAX", "delete_children", "delete_family"]

PAGE_MAX = 200
"""Number of children that are read at a time: the maximum page size of a list of chats (PROTOCOL §1)."""


async def delete_family(store: Index, chat_id: str, owner: str) -> bool:
    """Delete the children, then the chat. In this order, an attempt after an interruption still finds the chat and its
    remaining children. Returns False when the chat is unknown or belongs to another user. Raises Unavailable."""
    await delete_children(store, chat_id, owner)
    is_gone = await store.delete(chat_id, owner, secrets.token_hex(8))
    await delete_children(store, chat_id, owner)
    return is_gone


async def delete_children(store: Index, chat_id: str, owner: str) -> None:
    """Delete all children of the chat. Raises Unavailable."""
    list_owner = list_owner_of(owner, chat_id)
    while (page := await store.list_chats(list_owner, PAGE_MAX)).chats:
        for child in page.chats:
            await delete_family(store, child.chat_id, owner)
