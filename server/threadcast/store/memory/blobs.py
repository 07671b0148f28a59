"""Stores the blobs of the in-memory store, like `redis/blobs.py` and its scripts. `MemoryStore` inherits from
`MemoryBlobs`."""

from collections.abc import Awaitable, Callable, Sequence

from threadcast.store.memory.records import Bucket, Chat, KeptBlob
from threadcast.store.ports import BlobOutcome, BlobPut
from threadcast_protocol.wire.blobs import BLOBS_MAX_COUNT, BLOBS_TOTAL_MAX_BYTES, Blob, BlobFacts

__all__ = ["MemoryBlobs"]


class MemoryBlobs:
    """Stores blobs (large message parts) for `MemoryStore`."""

    _arrive: Callable[[str], Awaitable[tuple[Chat, Bucket, int]]]
    _keep: Callable[[str, Chat], None]

    async def put_blob(self, request: BlobPut) -> BlobOutcome:
        chat, _, now = await self._arrive(request.chat_id)
        owner, blob = chat.meta.get("owner"), request.blob
        if owner is not None and owner != request.owner:
            return BlobOutcome.FOREIGN
        if "deleted" in chat.meta and not request.revives:
            return BlobOutcome.GONE
        if chat.blobs and chat.blobs_owner != request.owner:
            if owner is None:
                return BlobOutcome.FOREIGN
            chat.blobs = {}
        until_ms = now + request.ttl_seconds * 1_000
        kept = chat.blobs.get(blob.hash)
        if kept is None:
            used_bytes = sum(len(other.blob.data) for other in chat.blobs.values())
            if len(chat.blobs) >= BLOBS_MAX_COUNT or used_bytes + len(blob.data) > BLOBS_TOTAL_MAX_BYTES:
                return BlobOutcome.FULL
            chat.blobs[blob.hash] = KeptBlob(blob, until_ms)
        else:
            kept.hold(until_ms)
        chat.blobs_owner = request.owner
        self._keep(request.chat_id, chat)
        return BlobOutcome.KEPT

    async def drop_blob(self, chat_id: str, owner: str, hash: str) -> None:
        chat, _, _ = await self._arrive(chat_id)
        kept = chat.blobs.get(hash) if chat.blobs_owner == owner else None
        if kept is not None and kept.expires_at_ms is not None:
            del chat.blobs[hash]
            self._keep(chat_id, chat)

    async def hold_blobs(
        self, chat_id: str, owner: str, hashes: Sequence[str], ttl_seconds: int
    ) -> dict[str, BlobFacts]:
        chat, _, now = await self._arrive(chat_id)
        if not _is_readable(chat, owner):
            return {}
        found = {hash: chat.blobs[hash] for hash in hashes if hash in chat.blobs}
        for kept in found.values():
            kept.hold(now + ttl_seconds * 1_000)
        return {hash: BlobFacts(kept.blob.mime, len(kept.blob.data)) for hash, kept in found.items()}

    async def get_blob(self, chat_id: str, owner: str, hash: str) -> Blob | None:
        chat, _, _ = await self._arrive(chat_id)
        kept = chat.blobs.get(hash) if _is_readable(chat, owner) else None
        return kept.blob if kept is not None else None


def _is_readable(chat: Chat, owner: str) -> bool:
    return "deleted" not in chat.meta and chat.meta.get("owner", owner) == owner and chat.blobs_owner == owner
