"""The log of a chat in Redis: appends entries after the owner's fence, and loads, reads and follows the log.

Events, facts and states are JSON bytes from the caller, stored and published unchanged. `RedisStore` in `store.py`
inherits from the class of this module. An append names the head that it follows, and every entry contains its
predecessor's head string and its own digest, so that a reader can check that no entry is missing.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from threadcast.chat.entries import Fence, RawEntry
from threadcast.store.bounds import LOG_PAGE_BYTES, PUBLISH_MAX_BYTES
from threadcast.store.ports import Appended, AppendRequest, AtOnce, Fenced, Loaded, LogMessage, list_owner_of
from threadcast.store.redis import checkpoint
from threadcast.store.redis.chat_meta import check_owner
from threadcast.store.redis.connection import Reply, Value
from threadcast.store.redis.log_messages import LogMessages
from threadcast.store.redis.part import RedisPart
from threadcast_protocol.wire.errors import Internal
from threadcast_protocol.wire.ids import EntryId

__all__ = ["RedisLog", "parse_entry"]

_fence = msgspec.json.Decoder(tuple[str, str])


def parse_entry(reply: Reply) -> RawEntry:
    """Parse one element of XRANGE's reply.

    Raises:
        Internal: the element was not written by this store.
    """
    entry_id, flat = reply
    try:
        fields: dict[bytes, bytes] = dict(zip(flat[::2], flat[1::2], strict=True))
        fence = fields.get(b"f")
        return RawEntry(
            entry_id=EntryId.parse(entry_id.decode()),
            head=b" ".join((entry_id, fields[b"d"], fields[b"p"])).decode(),
            before=fields[b"b"].decode(),
            position=int(fields[b"p"]),
            time_ms=int(fields[b"t"]),
            version=int(fields[b"v"]),
            events=fields.get(b"e", b"[]"),
            facts=fields.get(b"x", b""),
            acks=fields.get(b"a", b""),
            fence=Fence(*_fence.decode(fence)) if fence else None,
        )
    except (KeyError, ValueError, msgspec.DecodeError) as wrong:
        raise Internal(f"entry {entry_id.decode(errors='replace')} cannot be read: {wrong!r}") from None


class RedisLog(RedisPart):
    """Stores logs for `RedisStore`."""

    async def append(self, request: AppendRequest) -> Appended:
        check_owner(request)
        keys = self._keys.chat(request.chat_id)
        list_owner = list_owner_of(request.owner, request.parent)
        snap = b""
        if request.checkpoint is not None:
            snap = await checkpoint.compose(request.head, request.checkpoint_version, request.checkpoint)
        arguments: list[Value] = [
            keys.chat_id,
            request.expected,
            request.head,
            request.version,
            request.events or b"[]",
            request.facts,
            request.acks,
            snap,
            str(request.trim) if request.trim else b"",
            request.lifetime,
            request.expire_seconds,
            PUBLISH_MAX_BYTES,
            keys.log_channel,
            keys.feed_channel(list_owner),
            len(request.meta),
            " ".join(request.blobs),
        ]
        for pair in request.meta:
            arguments += pair
        for consumed in request.consumed:
            arguments += consumed
        answer = await self._redis.call(
            "append",
            (keys.log, keys.head, keys.inbox, keys.meta, keys.snap, keys.history, keys.chats(list_owner), keys.blobs),
            *arguments,
        )
        if answer == b"FENCED":
            raise Fenced(request.chat_id)
        return Appended.OK if answer == b"OK" else Appended.DUP

    async def load(self, chat_id: str) -> Loaded:
        snap, entries, head, more = await self._read(chat_id, b"", b"+")
        return Loaded(
            checkpoint=await checkpoint.split(snap),
            entries=[parse_entry(entry) for entry in entries],
            head=head.decode(),
            is_whole=not more,
        )

    async def read_entry(self, chat_id: str, entry_id: EntryId) -> RawEntry | None:
        wanted = str(entry_id)
        keys = self._keys.chat(chat_id)
        owned, resting = await self._redis.all([(b"XRANGE", key, wanted, wanted) for key in (keys.log, keys.recent)])
        found = owned or resting
        return parse_entry(found[0]) if found else None

    async def read_log(
        self,
        chat_id: str,
        through: EntryId | None = None,
        *,
        after: EntryId | None = None,
        newest: bool = False,
    ) -> list[RawEntry]:
        begin, end = b"-" if after is None else str(after), b"+" if through is None else str(through)
        _, entries, _, _ = await self._read(chat_id, begin, end, newest=newest)
        return [parse_entry(entry) for entry in (reversed(entries) if newest else entries)]

    async def _read(self, chat_id: str, after: Value, through: Value, *, newest: bool = False) -> Reply:
        keys = self._keys.chat(chat_id)
        arguments = (LOG_PAGE_BYTES, after, through, b"1" if newest else b"")
        return await self._redis.call("load", (keys.snap, keys.log, keys.head, keys.recent), *arguments)

    async def read_history(self, chat_id: str, *, last_only: bool = False) -> list[bytes]:
        key = self._keys.chat(chat_id).history
        return list(await self._redis.send(b"LRANGE", key, -1 if last_only else 0, -1))

    async def heads(self, chat_ids: Sequence[str]) -> list[str]:
        found = await self._redis.all([(b"GET", self._keys.chat(chat_id).head) for chat_id in chat_ids])
        return [(head or b"").decode() for head in found]

    @asynccontextmanager
    async def follow(self, chat_id: str, at_once: AtOnce | None = None) -> AsyncIterator[AsyncIterator[LogMessage]]:
        async with self._channels.subscribe([self._keys.chat(chat_id).log_channel]) as listener:
            yield LogMessages(chat_id, listener, at_once)

    async def watchers(self, chat_id: str) -> int:
        answer = await self._redis.send(b"PUBSUB", b"NUMSUB", self._keys.chat(chat_id).log_channel)
        return int(answer[1])
