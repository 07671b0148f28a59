"""What lists, feeds and refusals read of a chat: its meta, and an owner's chats by last activity, in Redis.

It writes nothing: `post`, `append` and `delete` keep these keys in the same step as what they are about.
`redis_store.py` combines it with the other nouns.
"""

from collections.abc import Sequence

from server.store.chat_meta import META_FIELDS, read_meta
from server.store.connection import Redis
from server.store.keys import Keys
from server.store.port import ChatMeta

__all__ = ["RedisLists"]


def _decode(values: Sequence[bytes | None]) -> list[str | None]:
    return [None if value is None else value.decode() for value in values]


class RedisLists:
    """The part of the store that knows which chats there are."""

    _redis: Redis
    _keys: Keys

    async def meta(self, chat_id: str) -> ChatMeta | None:
        return read_meta(
            chat_id, _decode(await self._redis.send(b"HMGET", self._keys.chat(chat_id).meta, *META_FIELDS))
        )

    async def list_chats(self, owner: str, limit: int, before_ms: int | None = None) -> list[ChatMeta]:
        """Each bucket gives its newest `limit`; the newest of all these are the newest of all."""
        below = b"+inf" if before_ms is None else f"({before_ms}"
        pages = await self._redis.all(
            [
                (
                    b"ZREVRANGEBYSCORE",
                    self._keys.chats(bucket, owner),
                    below,
                    b"-inf",
                    b"WITHSCORES",
                    b"LIMIT",
                    0,
                    limit,
                )
                for bucket in range(self._keys.buckets)
            ]
        )
        newest = sorted(
            (
                (-float(score), chat_id.decode())
                for page in pages
                for chat_id, score in zip(page[::2], page[1::2], strict=True)
            )
        )[:limit]
        chat_ids = [chat_id for _, chat_id in newest]
        found = await self._redis.all([(b"HMGET", self._keys.chat(chat_id).meta, *META_FIELDS) for chat_id in chat_ids])
        metas = [read_meta(chat_id, _decode(values)) for chat_id, values in zip(chat_ids, found, strict=True)]
        return [meta for meta in metas if meta is not None and not meta.deleted]
