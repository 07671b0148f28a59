"""Defines the account of a principal: the number of its chats, and the bytes that they fill in the store."""

from typing import Protocol

import msgspec

__all__ = ["Account", "Accounts"]


class Account(msgspec.Struct, frozen=True):
    """The number of one principal's chats, and the bytes that these chats take in the store's memory. The bytes include
    blobs of chats that do not exist yet. They exceed the bytes that the principal has sent, because the store needs
    memory for keys and structures."""

    bytes_count: int = 0
    chats_count: int = 0


class Accounts(Protocol):
    """Counts the chats and bytes of each principal. Accounts change in the same atomic steps as the data, so they are
    correct after a crash. Expired data is counted until the next `recount`. A process of an older version changes no
    accounts."""

    async def account(self, owner: str) -> Account:
        """Return the account of `owner`. Parts of the store that cannot be reached count as empty."""

    async def chat_bytes(self, chat_id: str, owner: str) -> int:
        """Return the bytes that one chat adds to the account of `owner`; 0 if the account does not contain the chat."""

    async def recount(self, owner: str) -> None:
        """Measure all chats of the account again, which takes some ms for each hundred chats. Raises Unavailable."""
