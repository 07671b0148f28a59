"""What lists, feeds and refusals read of a chat: its meta, and an owner's chats by last activity, in Redis.

It writes nothing: `post`, `append` and `delete` keep these keys in the same step as what they are about.
`redis_store.py` combines it with the other nouns.
"""

from collections.abc import Sequence

from server.store.connection import Redis
from server.store.keys import Keys
from server.store.port import ChatMeta

__all__ = ["RedisLists"]

_FIELDS = (
    b"owner",
    b"title",
    b"state",
    b"model",
    b"mode",
    b"message_count",
    b"queue",
    b"created_at",
    b"last_active",
    b"deleted",
)


def _meta(chat_id: str, values: Sequence[bytes | None]) -> ChatMeta | None:
    owner, title, state, model, mode, message_count, queue, created_at, last_active, deleted = values
    if owner is None:
        return None
    return ChatMeta(
        chat_id=chat_id,
        owner=owner.decode(),
        title=(title or b"").decode(),
        state=(state or b"idle").decode(),
        model=(model or b"").decode(),
        mode=(mode or b"").decode(),
        message_count=int(message_count or 0),
        queue=int(queue or 0),
        created_at=int(created_at or 0),
        last_active=int(last_active or 0),
        deleted=deleted is not None,
    )


class RedisLists:
    """The part of the store that knows which chats there are."""

    _redis: Redis
    _keys: Keys

    async def meta(self, chat_id: str) -> ChatMeta | None:
        return _meta(chat_id, await self._redis.send(b"HMGET", self._keys.chat(chat_id).meta, *_FIELDS))

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
        found = await self._redis.all([(b"HMGET", self._keys.chat(chat_id).meta, *_FIELDS) for chat_id in chat_ids])
        metas = [_meta(chat_id, values) for chat_id, values in zip(chat_ids, found, strict=True)]
        return [meta for meta in metas if meta is not None and not meta.deleted]
