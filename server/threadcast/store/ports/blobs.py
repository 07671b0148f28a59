"""Defines the blobs of a chat: large parts of messages, such as files, which are stored beside the chat's log."""

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

import msgspec

from threadcast_protocol.wire.blobs import Blob, BlobFacts

__all__ = ["BlobOutcome", "BlobPut", "Blobs"]


class BlobOutcome(Enum):
    """The result of storing a blob. KEPT: the blob is stored now, or was stored before. FULL: the chat has reached its
    limit of blobs or bytes."""

    KEPT = "KEPT"
    FULL = "FULL"
    FOREIGN = "FOREIGN"
    GONE = "GONE"


class BlobPut(msgspec.Struct, frozen=True, kw_only=True):
    """A request to store `blob` with a chat for `ttl_seconds`. An append that refers to the blob makes the blob
    permanent.

    The chat need not exist yet. Until it is created, its blobs belong to `owner`. They are deleted if another user
    creates the chat and stores a blob. With `revives`, the blob is stored even if the chat is deleted, because an
    import will create the chat again.
    """

    chat_id: str
    owner: str
    blob: Blob
    ttl_seconds: int
    revives: bool = False


class Blobs(Protocol):
    """Stores large parts of messages beside the log of their chat."""

    async def put_blob(self, request: BlobPut) -> BlobOutcome: ...

    async def drop_blob(self, chat_id: str, owner: str, hash: str) -> None:
        """Delete a blob of `owner`, unless it is kept for as long as its chat."""

    async def hold_blobs(
        self, chat_id: str, owner: str, hashes: Sequence[str], ttl_seconds: int
    ) -> dict[str, BlobFacts]:
        """Keep the blobs that `owner`'s chat has among `hashes` for at least another `ttl_seconds`. Returns the facts
        of these blobs, by hash."""

    async def get_blob(self, chat_id: str, owner: str, hash: str) -> Blob | None:
        """Return the blob, or None if the blob does not exist or belongs to another owner."""
