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
from server.store.bounds import EMPTY_CHAT_TTL_SECONDS, PUBLISH_MAX_BYTES
from server.store.channels import Channels, Listener
from server.store.connection import Redis, Reply, Value
from server.store.keys import Keys
from server.store.port import Appended, AppendRequest, Fenced, Loaded, Notice

__all__ = ["RedisLog", "parse_entry", "parse_notice"]

_DELETED = b'["deleted"]'


class _News(msgspec.Struct, frozen=True, array_like=True):
    """What the log channel carries. Without `events` it is a notice; `why` is a fence's."""

    head: str
    before: str
    time_ms: int
    version: int
    events: msgspec.Raw = msgspec.Raw(b"")
    acks: msgspec.Raw = msgspec.Raw(b"")
    why: str = ""


_news = msgspec.json.Decoder(_News)
_fence = msgspec.json.Decoder(tuple[str, str])


def parse_entry(reply: Reply) -> RawEntry:
    """One element of XRANGE's reply.

    Raises:
        Internal: somebody else wrote here.
    """
    entry_id, flat = reply
    fields: dict[bytes, bytes] = dict(zip(flat[::2], flat[1::2], strict=True))
    try:
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


def parse_notice(chat_id: str, payload: bytes | None) -> Notice:
    """A message of the log channel; None stands for a rebuilt one."""
    if payload is None:
        return Notice(kind="reconnected", chat_id=chat_id)
    if payload == _DELETED:
        return Notice(kind="deleted", chat_id=chat_id)
    try:
        news = _news.decode(payload)
        if not bytes(news.events):
            return Notice(kind="large", chat_id=chat_id, head=news.head, before=news.before, version=news.version)
        entry_id, _, position = news.head.split(" ")
        entry = RawEntry(
            entry_id=EntryId.parse(entry_id),
            head=news.head,
            before=news.before,
            position=int(position),
            time_ms=news.time_ms,
            version=news.version,
            events=bytes(news.events),
            acks=b"" if (acks := bytes(news.acks)) == b"[]" else acks,
            fence=Fence("", news.why) if news.why else None,
        )
    except (ValueError, msgspec.DecodeError):
        # A channel can be written by anybody who reaches the store: what we cannot read is something missed.
        return Notice(kind="reconnected", chat_id=chat_id)
    return Notice(kind="entry", chat_id=chat_id, entry=entry, head=news.head, before=news.before, version=news.version)


class _Notices:
    """A listener's payloads as notices, translated when they are read."""

    def __init__(self, chat_id: str, listener: Listener) -> None:
        self._chat_id = chat_id
        self._listener = listener

    def __aiter__(self) -> "_Notices":
        return self

    async def __anext__(self) -> Notice:
        return parse_notice(self._chat_id, await self._listener.__anext__())


class RedisLog:
    """The part of the store that holds logs."""

    _redis: Redis
    _keys: Keys
    _channels: Channels

    async def append(self, request: AppendRequest) -> Appended:
        keys = self._keys.chat(request.chat_id)
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
            keys.feed_channel(request.owner),
            len(request.meta),
        ]
        for pair in request.meta:
            arguments += pair
        for consumed in request.consumed:
            arguments += consumed
        answer = await self._redis.call(
            "append",
            (keys.log, keys.head, keys.inbox, keys.meta, keys.snap, keys.chats(request.owner)),
            *arguments,
        )
        if answer == b"FENCED":
            raise Fenced(request.chat_id)
        return Appended.OK if answer == b"OK" else Appended.DUP

    async def load(self, chat_id: str) -> Loaded:
        keys = self._keys.chat(chat_id)
        snap, entries, head = await self._redis.call("load", (keys.snap, keys.log, keys.head))
        return Loaded(
            checkpoint=await checkpoint.split(snap),
            entries=[parse_entry(entry) for entry in entries],
            head=head.decode(),
        )

    async def read_entry(self, chat_id: str, entry_id: EntryId) -> RawEntry | None:
        place = str(entry_id)
        found = await self._redis.send(b"XRANGE", self._keys.chat(chat_id).log, place, place)
        return parse_entry(found[0]) if found else None

    async def read_log(self, chat_id: str, through: EntryId | None = None) -> list[RawEntry]:
        end = b"+" if through is None else str(through)
        found = await self._redis.send(b"XRANGE", self._keys.chat(chat_id).log, b"-", end)
        return [parse_entry(entry) for entry in found]

    async def heads(self, chat_ids: Sequence[str]) -> list[str]:
        found = await self._redis.all([(b"GET", self._keys.chat(chat_id).head) for chat_id in chat_ids])
        return [(head or b"").decode() for head in found]

    @asynccontextmanager
    async def follow(self, chat_id: str) -> AsyncIterator[AsyncIterator[Notice]]:
        async with self._channels.subscribe([self._keys.chat(chat_id).log_channel]) as listener:
            yield _Notices(chat_id, listener)

    async def watchers(self, chat_id: str) -> int:
        answer = await self._redis.send(b"PUBSUB", b"NUMSUB", self._keys.chat(chat_id).log_channel)
        return int(answer[1])
