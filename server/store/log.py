"""The log of a chat in Redis: append behind the fence, load, read, follow.

It never looks inside events, facts or states; they are JSON bytes from the caller, stored and published as they came.
`redis_store.py` combines it with the other nouns. The rule: the head string decides. An append names the head it builds
on, and every entry carries what came before it and its own digest, so that no reader ever has to guess a place.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from protocol.entries import Fence, RawEntry
from protocol.errors import Internal
from protocol.ids import EntryId
from server.store import checkpoint
from server.store.bounds import EMPTY_CHAT_TTL_SECONDS, LOG_PAGE_BYTES, PUBLISH_MAX_BYTES
from server.store.channels import Subscriptions
from server.store.chat_meta import check_owner
from server.store.connection import Commands, Reply, Value
from server.store.keys import Keys
from server.store.news import Notices
from server.store.notice import AtOnce, Notice
from server.store.port import Appended, AppendRequest, Fenced, Loaded, shelf_of

__all__ = ["RedisLog", "parse_entry"]

_fence = msgspec.json.Decoder(tuple[str, str])


def parse_entry(reply: Reply) -> RawEntry:
    """One element of XRANGE's reply.

    Raises:
        Internal: somebody else wrote here.
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


class RedisLog:
    """The part of the store that holds logs."""

    _redis: Commands
    _keys: Keys
    _channels: Subscriptions

    async def append(self, request: AppendRequest) -> Appended:
        check_owner(request)
        keys = self._keys.chat(request.chat_id)
        shelf = shelf_of(request.owner, request.parent)
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
            EMPTY_CHAT_TTL_SECONDS,
            PUBLISH_MAX_BYTES,
            keys.log_channel,
            keys.feed_channel(shelf),
            len(request.meta),
            " ".join(request.blobs),
        ]
        for pair in request.meta:
            arguments += pair
        for consumed in request.consumed:
            arguments += consumed
        answer = await self._redis.call(
            "append",
            (keys.log, keys.head, keys.inbox, keys.meta, keys.snap, keys.chats(shelf), keys.blobs),
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
        place = str(entry_id)
        found = await self._redis.send(b"XRANGE", self._keys.chat(chat_id).log, place, place)
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
        return await self._redis.call("load", (keys.snap, keys.log, keys.head), *arguments)

    async def heads(self, chat_ids: Sequence[str]) -> list[str]:
        found = await self._redis.all([(b"GET", self._keys.chat(chat_id).head) for chat_id in chat_ids])
        return [(head or b"").decode() for head in found]

    @asynccontextmanager
    async def follow(self, chat_id: str, at_once: AtOnce | None = None) -> AsyncIterator[AsyncIterator[Notice]]:
        async with self._channels.subscribe([self._keys.chat(chat_id).log_channel]) as listener:
            yield Notices(chat_id, listener, at_once)

    async def watchers(self, chat_id: str) -> int:
        answer = await self._redis.send(b"PUBSUB", b"NUMSUB", self._keys.chat(chat_id).log_channel)
        return int(answer[1])
