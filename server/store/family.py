"""The end of a chat and of the chats that its tools began, as deep as they go (PROTOCOL §1).

A chat and its children lie in different slots, so no step ends them all. Who deletes finds the children on the chat's
shelf (`port.shelf_of`); a child stands there from the entry with which it begins, and looks for its parent after that
entry (`server/actor/orphans.py`). The rule: the shelf is emptied once more after the parent is gone, so that of a
delete and a beginning that meet, at least one sees the other.
"""

import secrets

from server.store.port import Store, shelf_of

__all__ = ["PAGE_MAX", "delete_children", "delete_family"]

PAGE_MAX = 200
"""Children read at a time, as many as a list of chats may have (PROTOCOL §1)."""


async def delete_family(store: Store, chat_id: str, owner: str) -> bool:
    """The children first: should this break off, the next try finds the chat and what is left of them. False when the
    chat is unknown or somebody else's. Raises Unavailable."""
    await delete_children(store, chat_id, owner)
    is_gone = await store.delete(chat_id, owner, secrets.token_hex(8))
    await delete_children(store, chat_id, owner)
    return is_gone


async def delete_children(store: Store, chat_id: str, owner: str) -> None:
    """All that stand on the chat's shelf. Raises Unavailable."""
    shelf = shelf_of(owner, chat_id)
    while (page := await store.list_chats(shelf, PAGE_MAX)).chats:
        for child in page.chats:
            await delete_family(store, child.chat_id, owner)
