"""Computes the accounts of the in-memory store, like `redis/accounts.py`. `MemoryStore` inherits from `MemoryAccounts`.

Accounts are computed when they are read, so `recount` does nothing.
"""

import anyio.lowlevel

from threadcast.store.bounds import BLOB_OVERHEAD_BYTES, CHAT_OVERHEAD_BYTES
from threadcast.store.memory.records import Chat
from threadcast.store.ports import Account

__all__ = ["MemoryAccounts"]


class MemoryAccounts:
    """Computes the accounts of principals for `MemoryStore`."""

    _chats: dict[str, Chat]

    async def account(self, owner: str) -> Account:
        await anyio.lowlevel.checkpoint()
        sizes = [size for chat in self._chats.values() if (size := _size(chat, owner))]
        gone = sum("deleted" in chat.meta and chat.meta.get("owner") == owner for chat in self._chats.values())
        return Account(sum(sizes) + gone * CHAT_OVERHEAD_BYTES, len(sizes))

    async def chat_bytes(self, chat_id: str, owner: str) -> int:
        await anyio.lowlevel.checkpoint()
        chat = self._chats.get(chat_id)
        return 0 if chat is None else _size(chat, owner)

    async def recount(self, owner: str) -> None:
        await anyio.lowlevel.checkpoint()


def _size(chat: Chat, owner: str) -> int:
    size = 0
    if chat.meta.get("owner") == owner and "deleted" not in chat.meta:
        size = CHAT_OVERHEAD_BYTES + sum(len(command.body) for command in chat.inbox.values())
        size += sum(len(entry.events) + len(entry.facts) + len(entry.acks) for entry in chat.log)
        size += 0 if chat.snap is None else len(chat.snap[2])
    if chat.blobs_owner == owner:
        size += sum(len(kept.blob.data) + BLOB_OVERHEAD_BYTES for kept in chat.blobs.values())
    return size
