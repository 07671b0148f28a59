"""Reads the index of chats: a chat's meta, an owner's chats by time, and the feed of changes.

This module writes nothing. The scripts `post`, `append` and `delete` write the index in the same atomic step as their
other changes. `RedisStore` in `store.py` inherits from the class of this module.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from threadcast.store.ports import ChatMeta, ChatPage, ListCursor
from threadcast.store.redis.chat_meta import META_FIELDS, page_of, read_meta
from threadcast.store.redis.connection import Value
from threadcast.store.redis.log_messages import Following, InboxSignals
from threadcast.store.redis.part import RedisPart

__all__ = ["RedisLists"]


def _decode(values: Sequence[bytes | None]) -> list[str | None]:
    return [None if value is None else value.decode() for value in values]


class RedisLists(RedisPart):
    """Reads lists of chats for `RedisStore`."""

    async def meta(self, chat_id: str) -> ChatMeta | None:
        return read_meta(
            chat_id, _decode(await self._redis.send(b"HMGET", self._keys.chat(chat_id).meta, *META_FIELDS))
        )

    async def list_chats(self, owner: str, limit: int, after: ListCursor | None = None) -> ChatPage:
        """Read the next `limit + 1` chats of each bucket, and merge them by time. The first `limit` of the merged chats
        are the page.

        ZREVRANGEBYSCORE returns chats with equal scores in the reverse order of their ids, which is the list's order.
        So a page may end between chats of the same millisecond. The next page then reads all chats of that
        millisecond, which are few in any bucket, and returns the rest of them.
        """
        keys = [self._keys.chats(bucket, owner) for bucket in range(self._keys.buckets)]
        below = b"+inf" if after is None else f"({after.last_active}"
        asked: list[tuple[Value, ...]] = [
            (b"ZREVRANGEBYSCORE", key, below, b"-inf", b"WITHSCORES", b"LIMIT", 0, limit + 1) for key in keys
        ]
        if after is not None:
            same = str(after.last_active)
            asked += [(b"ZREVRANGEBYSCORE", key, same, same, b"WITHSCORES") for key in keys]
        cursors = [
            ListCursor(int(float(score)), chat_id.decode())
            for page in await self._redis.all(asked)
            for chat_id, score in zip(page[::2], page[1::2], strict=True)
        ]
        left = sorted((cursor for cursor in cursors if after is None or cursor < after), reverse=True)
        return page_of(left[:limit], await self._values([cursor.chat_id for cursor in left[:limit]]), len(left) > limit)

    async def listed(self, owner: str, chat_ids: Sequence[str]) -> list[ChatMeta]:
        scores = await self._redis.all(
            [(b"ZSCORE", self._keys.chat(chat_id).chats(owner), chat_id) for chat_id in chat_ids]
        )
        here = [chat_id for chat_id, score in zip(chat_ids, scores, strict=True) if score is not None]
        metas = [read_meta(chat_id, values) for chat_id, values in zip(here, await self._values(here), strict=True)]
        return [meta for meta in metas if meta is not None and not meta.deleted]

    async def count_chats(self, owner: str) -> int:
        counts = await self._redis.all(
            [(b"ZCARD", self._keys.chats(bucket, owner)) for bucket in range(self._keys.buckets)]
        )
        return sum(map(int, counts))

    def follow_feed(
        self, owner: str, woken: Callable[[], None] | None = None
    ) -> AbstractAsyncContextManager[InboxSignals]:
        return Following(self._channels.subscribe(self._feed_channels(owner), woken), InboxSignals)

    def _feed_channels(self, owner: str) -> list[bytes]:
        """Return the channels on which changes of the owner's list are published (decision 0049)."""
        return [channel] if (channel := self._list_channel(owner)) else self._keys.feed_channels(owner)

    async def _values(self, chat_ids: Sequence[str]) -> list[list[str | None]]:
        found = await self._redis.all([(b"HMGET", self._keys.chat(chat_id).meta, *META_FIELDS) for chat_id in chat_ids])
        return [_decode(values) for values in found]
