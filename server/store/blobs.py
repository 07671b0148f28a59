"""Large parts beside the log in Redis: laid down for a day, kept by the append that refers to them, gone with the chat.

It does not know what a blob is to a message. `redis_store.py` combines it with the other nouns; `append` keeps blobs,
`delete` drops them, each in its one step. The rule: a blob belongs to the chat's owner, or, while there is no chat, to
whoever laid it down, and nobody else ever learns that it is there.
"""

from collections.abc import Sequence

from protocol.blobs import BLOBS_MAX_COUNT, BLOBS_TOTAL_MAX_BYTES, Blob, BlobFacts
from server.store.connection import Commands
from server.store.keys import Keys
from server.store.port import BlobOutcome, BlobPut

__all__ = ["RedisBlobs"]


class RedisBlobs:
    """The part of the store that holds large parts."""

    _redis: Commands
    _keys: Keys

    async def put_blob(self, request: BlobPut) -> BlobOutcome:
        keys, blob = self._keys.chat(request.chat_id), request.blob
        answer = await self._redis.call(
            "blob_put",
            (keys.blobs, keys.blob(blob.hash), keys.meta),
            blob.hash,
            request.owner,
            blob.mime,
            blob.data,
            request.ttl_seconds,
            BLOBS_MAX_COUNT,
            BLOBS_TOTAL_MAX_BYTES,
            1 if request.revives else 0,
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
