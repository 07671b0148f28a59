"""The blobs of a chat: large parts of messages, such as files, that are stored beside its log."""

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
    """Stores `blob` with a chat for `ttl_seconds`; an append that refers to it makes it permanent.

    The chat need not exist yet: its blobs then belong to `owner`, and are deleted when another user creates the chat
    and stores a blob. `revives`: store the blob even if the chat is deleted, for an import that follows.
    """

    chat_id: str
    owner: str
    blob: Blob
    ttl_seconds: int
    revives: bool = False


class Blobs(Protocol):
    """Keeps the large parts of messages beside their chat."""

    async def put_blob(self, request: BlobPut) -> BlobOutcome: ...

    async def hold_blobs(
        self, chat_id: str, owner: str, hashes: Sequence[str], ttl_seconds: int
    ) -> dict[str, BlobFacts]:
        """Return those of `hashes` that `owner`'s chat holds, and keep these blobs for at least another
        `ttl_seconds`."""

    async def get_blob(self, chat_id: str, owner: str, hash: str) -> Blob | None:
        """Return the blob; None when it does not exist, or when the chat (or the blobs of a chat not yet created) has
        another owner."""
