"""Stores large message parts beside the log in Redis: for a day, or as long as the chat once an append refers to them.

`RedisStore` in `store.py` inherits from the class of this module. The script `append` keeps blobs and the script
`delete` deletes them, each in its own atomic step. A blob belongs to the chat's owner. While the chat does not exist,
the blob belongs to the user who stored it. Other users cannot find out whether a blob exists. A blob above
WHOLE_MAX_BYTES is written and read in slices (`slices.py`). Processes of older versions cannot read slices, and
report such a blob as missing.
"""

from collections.abc import Sequence

from threadcast.store.bounds import BLOB_OVERHEAD_BYTES, WHOLE_MAX_BYTES
from threadcast.store.ports import BlobOutcome, BlobPut
from threadcast.store.redis.connection import Reply
from threadcast.store.redis.part import RedisPart
from threadcast.store.redis.slices import gathered, slices_of, staged, unstaged
from threadcast_protocol.wire.blobs import BLOBS_MAX_COUNT, BLOBS_TOTAL_MAX_BYTES, Blob, BlobFacts

__all__ = ["RedisBlobs"]


class RedisBlobs(RedisPart):
    """Stores blobs (large message parts) for `RedisStore`."""

    async def put_blob(self, request: BlobPut) -> BlobOutcome:
        data = request.blob.data
        if len(data) <= WHOLE_MAX_BYTES:
            return BlobOutcome((await self._put(request, data, 0)).decode())
        # The first call writes no data. It refuses the blob, or finds the blob stored, or answers UNSTAGED.
        answer = await self._put(request, b"", slices_of(len(data)))
        if answer == b"UNSTAGED":
            key = self._keys.chat(request.chat_id).staged_blob(request.blob.hash)
            answer = await self._put(request, b"", await staged(self._redis, key, data))
        if answer == b"UNSTAGED":
            raise unstaged()
        return BlobOutcome(answer.decode())

    async def _put(self, request: BlobPut, data: bytes, slices: int) -> Reply:
        keys, blob = self._keys.chat(request.chat_id), request.blob
        account, accounts = keys.account(request.owner), keys.account("")
        return await self._redis.call(
            "blob_put",
            (keys.blobs, keys.blob(blob.hash), keys.meta, account, accounts, keys.staged_blob(blob.hash)),
            blob.hash,
            request.owner,
            blob.mime,
            data,
            request.ttl_seconds,
            BLOBS_MAX_COUNT,
            BLOBS_TOTAL_MAX_BYTES,
            1 if request.revives else 0,
            BLOB_OVERHEAD_BYTES,
            keys.chat_id,
            len(blob.data),
            slices,
        )

    async def drop_blob(self, chat_id: str, owner: str, hash: str) -> None:
        keys = self._keys.chat(chat_id)
        await self._redis.call(
            "blob_drop",
            (keys.blobs, keys.blob(hash), keys.account(owner)),
            hash,
            owner,
            keys.chat_id,
            BLOB_OVERHEAD_BYTES,
        )

    async def hold_blobs(
        self, chat_id: str, owner: str, hashes: Sequence[str], ttl_seconds: int
    ) -> dict[str, BlobFacts]:
        if not hashes:
            return {}
        keys = self._keys.chat(chat_id)
        found = await self._redis.call("blob_hold", (keys.blobs, keys.meta), owner, ttl_seconds, *hashes)
        known = zip(hashes, found, strict=True)
        return {hash: BlobFacts(facts[0].decode(), int(facts[1])) for hash, facts in known if facts}

    async def get_blob(self, chat_id: str, owner: str, hash: str) -> Blob | None:
        keys = self._keys.chat(chat_id)
        key = keys.blob(hash)
        found = await self._redis.call("blob_get", (keys.blobs, key, keys.meta), owner, WHOLE_MAX_BYTES)
        if not found:
            return None
        mime, data, size_bytes, is_sliced = found

        async def read(number: int) -> bytes | None:
            slice_: bytes | None = await self._redis.send(b"HGET", key, number)
            return slice_

        if is_sliced:
            data = await gathered(read, size_bytes)
        elif size_bytes > WHOLE_MAX_BYTES:  # stored whole by an older version; a script would copy it
            data = await self._redis.send(b"HGET", key, b"d")
        return None if data is None else Blob(hash, mime.decode(), data)
