"""Stores large message parts beside the log in Redis: for a day, or as long as the chat once an append refers to them.

`RedisStore` in `store.py` inherits from the class of this module. The scripts `append` and `delete` also keep and
delete blobs, in their own atomic steps. A blob belongs to the chat's owner or, while the chat does not exist, to the
user who stored it; other users cannot learn that it exists.
"""

from collections.abc import Sequence

from threadcast.store.bounds import BLOB_OVERHEAD_BYTES
from threadcast.store.ports import BlobOutcome, BlobPut
from threadcast.store.redis.part import RedisPart
from threadcast_protocol.wire.blobs import BLOBS_MAX_COUNT, BLOBS_TOTAL_MAX_BYTES, Blob, BlobFacts

__all__ = ["RedisBlobs"]


class RedisBlobs(RedisPart):
    """Stores blobs (large message parts) for `RedisStore`."""

    async def put_blob(self, request: BlobPut) -> BlobOutcome:
        keys, blob = self._keys.chat(request.chat_id), request.blob
        answer = await self._redis.call(
            "blob_put",
            (keys.blobs, keys.blob(blob.hash), keys.meta, keys.account(request.owner), keys.account("")),
            blob.hash,
            request.owner,
            blob.mime,
            blob.data,
            request.ttl_seconds,
            BLOBS_MAX_COUNT,
            BLOBS_TOTAL_MAX_BYTES,
            1 if request.revives else 0,
            BLOB_OVERHEAD_BYTES,
            keys.chat_id,
        )
        return BlobOutcome(answer.decode())

    async def hold_blobs(
        self, chat_id: str, owner: str, hashes: Sequence[str], ttl_seconds: int
    ) -> dict[str, BlobFacts]:
        if not hashes:
            return {}
        keys = self._keys.chat(chat_id)
        found = await self._redis.call("blob_hold", (keys.blobs, keys.meta), owner, ttl_seconds, *hashes)
        return {
            hash: BlobFacts(facts[0].decode(), facts[1]) for hash, facts in zip(hashes, found, strict=True) if facts
        }

    async def get_blob(self, chat_id: str, owner: str, hash: str) -> Blob | None:
        keys = self._keys.chat(chat_id)
        found = await self._redis.call("blob_get", (keys.blobs, keys.blob(hash), keys.meta), owner)
        return Blob(hash, found[0].decode(), found[1]) if found else None
