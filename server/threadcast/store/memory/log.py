"""Stores the logs, checkpoints and histories of the in-memory store, like `redis/log.py` and its scripts. `MemoryStore`
inherits from `MemoryLog`."""

import json
from collections.abc import Awaitable, Callable, Sequence

from threadcast.chat.entries import RawEntry
from threadcast.store.bounds import LOG_PAGE_BYTES, PUBLISH_MAX_BYTES
from threadcast.store.memory.channels import MemoryChannels
from threadcast.store.memory.records import Bucket, Chat, first_of
from threadcast.store.ports import Appended, AppendRequest, Fenced, Loaded, list_owner_of
from threadcast.store.redis.chat_meta import check_owner
from threadcast_protocol.wire.errors import Internal
from threadcast_protocol.wire.ids import EntryId, Head

__all__ = ["MemoryLog"]


class MemoryLog(MemoryChannels):
    """Appends to and reads the logs of chats for `MemoryStore`."""

    _arrive: Callable[[str], Awaitable[tuple[Chat, Bucket, int]]]
    page_bytes = LOG_PAGE_BYTES

    async def append(self, request: AppendRequest) -> Appended:
        check_owner(request)
        chat, bucket, now = await self._arrive(request.chat_id)
        if chat.head and chat.head == request.head != request.expected:
            return Appended.DUP
        if not chat.head or chat.head != request.expected:
            raise Fenced(request.chat_id)
        for inbox_id, request_id in request.consumed:
            waiting = chat.inbox.get(inbox_id)
            if waiting is None or waiting.request_id != request_id:
                raise Fenced(request.chat_id)
        head = Head.parse(request.head)
        if chat.log and chat.log[-1].entry_id >= head.entry_id:
            raise Internal("the store answered with an error: the entry's id is equal or smaller than the last one's")
        if not chat.log:
            raise Fenced(request.chat_id)
        chat.log.append(
            RawEntry(
                entry_id=head.entry_id,
                head=request.head,
                before=request.expected,
                position=head.position,
                time_ms=now,
                version=request.version,
                events=request.events or b"[]",
                facts=request.facts,
                acks=request.acks,
            )
        )
        chat.head = request.head
        for inbox_id, _ in request.consumed:
            del chat.inbox[inbox_id]
        if request.checkpoint is not None:
            chat.snap = (request.head, request.checkpoint_version, request.checkpoint)
        if request.trim is not None and chat.snap is not None:
            first = min(request.trim, Head.parse(chat.snap[0]).entry_id)
            chat.log = [entry for entry in chat.log if entry.entry_id >= first]
        self._index(request, chat, bucket, now)
        self._publish(request.chat_id, chat.log[-1])
        return Appended.OK

    def _index(self, request: AppendRequest, chat: Chat, bucket: Bucket, now: int) -> None:
        list_owner = list_owner_of(request.owner, request.parent)
        mine = bucket.chats.setdefault(list_owner, {})
        if request.meta:
            chat.meta.update(request.meta)
            chat.meta["last_active"] = str(now)
            mine[request.chat_id] = now
        for hash in request.blobs:
            if hash in chat.blobs:
                chat.blobs[hash].expires_at_ms = None
        if request.lifetime == "expire":
            mine.pop(request.chat_id, None)
        if request.lifetime == "expire" and not chat.inbox:  # not while commands wait
            chat.expires_at_ms = now + request.expire_seconds * 1_000
            for kept in chat.blobs.values():
                kept.expires_at_ms = chat.expires_at_ms
        elif request.lifetime == "persist":
            chat.expires_at_ms = None
        if request.meta:
            self._switchboard.publish(f"feed:{list_owner}", request.chat_id.encode())

    def _publish(self, chat_id: str, entry: RawEntry) -> None:
        """Publish the same bytes that the scripts publish."""
        parts = [f'"{entry.head}","{entry.before}",{entry.time_ms},{entry.version}'.encode()]
        if len(entry.events) <= PUBLISH_MAX_BYTES:
            parts += [entry.events, entry.acks or b"[]"]
        if entry.fence is not None:
            parts.append(json.dumps(entry.fence.why).encode())
        self._switchboard.publish(f"log:{chat_id}", b"[" + b",".join(parts) + b"]")

    async def load(self, chat_id: str) -> Loaded:
        chat, _, _ = await self._arrive(chat_id)
        after = Head.parse(chat.snap[0]).entry_id if chat.snap else EntryId(0, 0)
        entries = [entry for entry in chat.log if entry.entry_id > after]
        page = first_of(entries, self.page_bytes)
        return Loaded(chat.snap, page, chat.head, len(page) == len(entries))

    async def read_entry(self, chat_id: str, entry_id: EntryId) -> RawEntry | None:
        chat, _, _ = await self._arrive(chat_id)
        return next((entry for entry in chat.log if entry.entry_id == entry_id), None)

    async def read_log(
        self,
        chat_id: str,
        through: EntryId | None = None,
        *,
        after: EntryId | None = None,
        newest: bool = False,
    ) -> list[RawEntry]:
        chat, _, _ = await self._arrive(chat_id)
        entries = [
            entry
            for entry in chat.log
            if (through is None or entry.entry_id <= through) and (after is None or entry.entry_id > after)
        ]
        return first_of(entries[::-1], self.page_bytes)[::-1] if newest else first_of(entries, self.page_bytes)

    async def read_history(self, chat_id: str, *, last_only: bool = False) -> list[bytes]:
        chat, _, _ = await self._arrive(chat_id)
        return chat.history[-1:] if last_only else list(chat.history)

    async def heads(self, chat_ids: Sequence[str]) -> list[str]:
        return [(await self._arrive(chat_id))[0].head for chat_id in chat_ids]
