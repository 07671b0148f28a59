"""The log of a chat in Redis: appends entries after the owner's fence, and loads, reads and follows the log.

Pages of a log, and large checkpoints, are read in slices, with one command for each slice. Large checkpoints are also
written in slices (`slices.py`).

Events, facts and states are JSON bytes from the caller, whose content this module does not change. `RedisStore` in
`store.py` inherits from the class of this module. An append names the head that it follows. Every entry contains its
own digest and the head string of the entry before it, so that a reader can check that no entry is missing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache, partial

import msgspec

from threadcast.chat.entries import Fence, RawEntry
from threadcast.store.bounds import (
    LOG_PAGE_BYTES,
    PUBLISH_MAX_BYTES,
    SLICE_BYTES,
    SLICE_ENTRIES,
    TRIM_ENTRIES,
    WHOLE_MAX_BYTES,
)
from threadcast.store.ports import Appended, AppendRequest, AtOnce, Fenced, Loaded, LogMessage, list_owner_of
from threadcast.store.redis import checkpoint
from threadcast.store.redis.chat_meta import check_owner
from threadcast.store.redis.connection import Reply, Value
from threadcast.store.redis.keys import Keys
from threadcast.store.redis.log_messages import Following, LogMessages, delta_payload
from threadcast.store.redis.part import RedisPart
from threadcast.store.redis.slices import gathered, staged, unstaged
from threadcast_protocol.wire.errors import Internal, Unavailable
from threadcast_protocol.wire.ids import EntryId

__all__ = ["RedisLog", "parse_entry"]

READS_MAX = 5
"""The maximum number of attempts of one load. An attempt fails when the checkpoint was replaced while its slices were
read."""

NAMES_MAX = 4_096
"""The number of chats whose key names are cached: more than a worker streams at once. The names of a chat take half a
kilobyte."""

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


def _is_delta(request: AppendRequest) -> bool:
    """Return whether the append changes only the log, and the entry's events are small enough to be published."""
    return (
        0 < len(request.events) <= PUBLISH_MAX_BYTES
        and not (request.facts or request.acks or request.consumed or request.meta or request.lifetime)
        and not (request.blobs or request.trim)
        and request.checkpoint is None
    )


def _appended(request: AppendRequest, answer: Reply) -> Appended:
    """Return the result of an append from the script's answer. Raises Fenced."""
    if answer == b"FENCED":
        raise Fenced(request.chat_id)
    return Appended.DUP if answer == b"DUP" else Appended.OK


@lru_cache(NAMES_MAX)
def _names(keys: Keys, chat_id: str) -> tuple[bytes, bytes, bytes]:
    """Return the names of a chat's log, head and log channel."""
    of = keys.chat(chat_id)
    return of.log, of.head, of.log_channel


class RedisLog(RedisPart):
    """Stores logs for `RedisStore`."""

    async def append(self, request: AppendRequest) -> Appended:
        if _is_delta(request):
            return _appended(request, await self._append_delta(request))
        check_owner(request)
        keys = self._keys.chat(request.chat_id)
        list_owner = list_owner_of(request.owner, request.parent)
        composed = checkpoint.Composed(b"", b"")
        if request.checkpoint is not None:
            composed = await checkpoint.compose(request.head, request.checkpoint_version, request.checkpoint)
        staged_snap = keys.staged_snap(request.head.partition(" ")[0])
        arguments: list[Value] = [
            keys.chat_id,
            request.expected,
            request.head,
            request.version,
            request.events or b"[]",
            request.facts,
            request.acks,
            composed.snap,
            str(request.trim) if request.trim else b"",
            request.lifetime,
            request.expire_seconds,
            PUBLISH_MAX_BYTES,
            keys.log_channel,
            keys.feed_channel(list_owner),
            len(request.meta),
            " ".join(request.blobs),
            await staged(self._redis, staged_snap, composed.slices),
            TRIM_ENTRIES,
            self._list_channel(list_owner),
        ]
        for pair in request.meta:
            arguments += pair
        for consumed in request.consumed:
            arguments += consumed
        answer = await self._redis.call(
            "append",
            (
                keys.log,
                keys.head,
                keys.inbox,
                keys.meta,
                keys.snap,
                keys.history,
                keys.snap_slices,
                keys.chats(list_owner),
                keys.blobs,
                staged_snap,
            ),
            *arguments,
        )
        if answer == b"UNSTAGED":
            raise unstaged()
        return _appended(request, answer)

    def _append_delta(self, request: AppendRequest) -> Awaitable[Reply]:
        """Call the script `append_delta`. The store and this process then need two thirds of the time of `append`."""
        log, head, channel = _names(self._keys, request.chat_id)
        entry_id, digest, position = request.head.split(" ")
        is_followed = bool(self._channels.confirmed_listeners(channel))
        return self._redis.call(
            "append_delta",
            (log, head),
            request.expected,
            request.head,
            entry_id,
            digest,
            position,
            request.version,
            request.events,
            channel,
            b"1" if is_followed else b"",
            on_reply=partial(self._hand, request, channel) if is_followed else None,
        )

    def _hand(self, request: AppendRequest, channel: bytes, answer: Reply) -> None:
        """Pass an appended entry on to the listeners of this process.

        If no other process follows the channel, the store has not published the entry. Otherwise the listeners also
        get the published message, and drop it, because they have its head already.

        A listener that cannot handle the entry at once gets the message in the next turn of the loop, after the
        messages that were received together with the answer. If the first answer of the append was lost, the
        listeners get None, and then read the log.
        """
        if answer == b"FENCED":
            return
        listeners = self._channels.confirmed_listeners(channel)
        if answer == b"DUP":
            for listener in listeners:
                listener.offer(None)
            return
        head, before, version = request.head, request.expected, request.version
        entry_id, _, position = head.split(" ")
        entry = RawEntry(
            entry_id=EntryId.parse(entry_id),
            head=head,
            before=before,
            position=int(position),
            time_ms=int(answer),
            version=version,
            events=request.events,
        )
        message = LogMessage(
            kind="entry", chat_id=request.chat_id, entry=entry, head=head, before=before, version=version
        )
        for listener in listeners:
            if listener.at_once is None or not listener.is_empty or not listener.at_once(message):
                payload = delta_payload(request.head, request.expected, answer, request.version, request.events)
                asyncio.get_running_loop().call_soon(listener.offer, payload)

    async def load(self, chat_id: str) -> Loaded:
        for _ in range(READS_MAX):
            snap, snap_bytes, found, head, more, size = await self._slice(chat_id, b"", b"+", SLICE_BYTES)
            entries = [parse_entry(entry) for entry in found]
            known = checkpoint.sliced(snap)
            if known is None and snap_bytes == len(snap):
                last = await checkpoint.split(snap)
            else:
                last = await self._large_checkpoint(chat_id, snap, snap_bytes, known)
                if last is None:  # the checkpoint was replaced in the meantime
                    continue
            present = head.decode()
            if more:
                await self._read_on(chat_id, entries, size, present.partition(" ")[0])
            return Loaded(last, entries, present, is_whole=not more or entries[-1].head == present)
        raise Unavailable("the checkpoint of this chat is replaced faster than it can be read; try again")

    async def _large_checkpoint(
        self, chat_id: str, snap: bytes, snap_bytes: int, known: checkpoint.Sliced | None
    ) -> tuple[str, int, bytes] | None:
        """Read a large checkpoint slice by slice. `known` describes the stored slices of its state. Without `known`, an
        older version stored the checkpoint as one string, which begins with `snap`. Returns None if the checkpoint
        was replaced in the meantime."""
        keys = self._keys.chat(chat_id)
        line, cut = (snap.partition(b"\n")[0], SLICE_BYTES) if known is None else (known.line, 0)

        async def read(number: int) -> bytes | None:
            found: bytes | None = await self._redis.call("snap_slice", (keys.snap, keys.snap_slices), line, number, cut)
            return found

        data = await gathered(read, snap_bytes if known is None else known.size_bytes)
        if data is None:
            return None
        if known is not None:
            data = f"{known.line.rpartition(' ')[0]} {known.version}\n".encode() + data
        return await checkpoint.split(data)

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
        begin, end = "-" if after is None else str(after), "+" if through is None else str(through)
        _, _, found, _, more, size = await self._slice(chat_id, begin, end, SLICE_BYTES, newest)
        entries = [parse_entry(entry) for entry in found]
        if more:
            await self._read_on(chat_id, entries, size, begin if newest else end, newest=newest)
        return entries[::-1] if newest else entries

    async def _read_on(
        self, chat_id: str, entries: list[RawEntry], size_bytes: int, end: str, *, newest: bool = False
    ) -> None:
        """Append the following entries, up to `end`, to `entries`, slice by slice, until `entries` is a full page.

        `size_bytes` is the size of `entries` at the start. If a slice does not follow the slice before it, because
        the log was trimmed in the meantime, the page ends before that slice.
        """
        more = 1
        while more and size_bytes < LOG_PAGE_BYTES:
            last = entries[-1]
            after, through = (end, f"({last.entry_id}") if newest else (str(last.entry_id), end)
            _, _, found, _, more, size = await self._slice(chat_id, after, through, LOG_PAGE_BYTES - size_bytes, newest)
            size_bytes += size
            if not found or size_bytes > LOG_PAGE_BYTES:  # a slice has at least one entry of any size
                break
            slice_ = [parse_entry(entry) for entry in found]
            if last.before != slice_[0].head if newest else slice_[0].before != last.head:
                break
            entries += slice_

    async def _slice(self, chat_id: str, after: Value, through: Value, max_bytes: int, newest: bool = False) -> Reply:
        keys = self._keys.chat(chat_id)
        return await self._redis.call(
            "load",
            (keys.snap, keys.log, keys.head, keys.recent),
            min(max_bytes, SLICE_BYTES),
            SLICE_ENTRIES,
            WHOLE_MAX_BYTES,
            after,
            through,
            b"1" if newest else b"",
        )

    async def read_history(self, chat_id: str, *, last_only: bool = False) -> list[bytes]:
        key = self._keys.chat(chat_id).history
        return list(await self._redis.send(b"LRANGE", key, -1 if last_only else 0, -1))

    async def heads(self, chat_ids: Sequence[str]) -> list[str]:
        found = await self._redis.all([(b"GET", self._keys.chat(chat_id).head) for chat_id in chat_ids])
        return [(head or b"").decode() for head in found]

    def follow(
        self, chat_id: str, at_once: AtOnce | None = None, woken: Callable[[], None] | None = None
    ) -> AbstractAsyncContextManager[LogMessages]:
        return Following(
            self._channels.subscribe([self._keys.chat(chat_id).log_channel], woken),
            lambda listener: LogMessages(chat_id, listener, at_once),
        )

    async def watchers(self, chat_id: str) -> int:
        answer = await self._redis.send(b"PUBSUB", b"NUMSUB", self._keys.chat(chat_id).log_channel)
        return int(answer[1])
