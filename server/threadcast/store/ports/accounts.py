"""The account of a principal: how much of the store its chats fill."""

from typing import Protocol

import msgspec

__all__ = ["Account", "Accounts"]


class Account(msgspec.Struct, frozen=True):
    """The number of chats of one principal and the bytes that they take, including blobs of chats that do not exist
    yet. The bytes are measured in the store's memory, so they exceed the bytes that the principal has sent."""

    bytes_count: int = 0
    chats_count: int = 0


class Accounts(Protocol):
    """Counts what each principal stores. Accounts change in the same atomic steps as the data, so they are correct
    after a crash. Expired data is counted until the next `recount`; a process of an older version changes no
    accounts."""

    async def account(self, owner: str) -> Account:
        """Return the account. Parts of the store that cannot be reached count as empty."""

    async def chat_bytes(self, chat_id: str, owner: str) -> int:
        """Return the bytes of one chat in its owner's account; 0 for a chat that the account does not contain."""

    async def recount(self, owner: str) -> None:
        """Measure all chats of the account anew. Takes some ms for each hundred chats. Raises Unavailable."""
