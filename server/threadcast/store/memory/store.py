"""Implements the Store port in process memory, for unit tests and simulation.

`MemoryStore` gives the same guarantees as `redis/store.py`, step by step as in DISPATCH §4, and passes the same
contract tests. Each method first yields to the event loop once, so that it may be cancelled. Then the method runs
without awaiting, so that its step is atomic. The clock is an argument of the constructor. Except for `secret`, nothing
else in the store depends on time or chance.
"""

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence

import anyio.lowlevel

from threadcast.chat.entries import Fence, RawEntry
from threadcast.store.bounds import (
    DEAD_MAX,
    DELETED_TTL_SECONDS,
    FAST_TAKEOVER_MS,
    INBOX_MAX,
    QUEUE_COUNTS,
)
from threadcast.store.memory.accounts import MemoryAccounts
from threadcast.store.memory.blobs import MemoryBlobs
from threadcast.store.memory.log import MemoryLog
from threadcast.store.memory.records import Bucket, Chat, in_turn
from threadcast.store.memory.traces import MemoryTraces
from threadcast.store.ports import (
    Beat,
    BucketStatus,
    ChatMeta,
    ChatPage,
    Claimed,
    Compacted,
    EndedLeases,
    Fenced,
    InboxEntry,
    ListCursor,
    Lost,
    Posted,
    PostOutcome,
    PostRequest,
    Released,
    Standing,
    Taken,
    list_owner_of,
)
from threadcast.store.redis.chat_meta import META_FIELDS, page_of, read_meta
from threadcast.store.redis.keys import BUCKETS, Keys
from threadcast.store.redis.log_messages import DELETED
from threadcast_protocol.wire.ids import EntryId, Head

__all__ = ["MemoryStore"]


def _system_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MemoryStore(MemoryBlobs, MemoryAccounts, MemoryTraces, MemoryLog):
    """Implements `threadcast.store.ports.Store`. The workers and the web processes of a test share one object of this
    class."""

    def __init__(self, clock_ms: Callable[[], int] = _system_clock_ms) -> None:
        super().__init__()
        self._now = clock_ms
        self._keys = Keys(BUCKETS)
        self._secret = b""
        self._chats: dict[str, Chat] = {}
        self.dead: list[tuple[str, InboxEntry, str]] = []

    @property
    def buckets(self) -> int:
        return BUCKETS

    def bucket_of(self, chat_id: str) -> int:
        return self._keys.bucket_of(chat_id)

    async def _arrive(self, chat_id: str = "") -> tuple[Chat, Bucket, int]:
        await anyio.lowlevel.checkpoint()
        now = self._now()
        chat = self._chats.get(chat_id)
        if chat is None:
            chat = Chat()  # reading a chat does not store it; `_keep` does
        chat.expire(now)
        return chat, self._buckets[self.bucket_of(chat_id)], now

    def _keep(self, chat_id: str, chat: Chat) -> None:
        self._chats[chat_id] = chat

    async def ping(self) -> Standing:
        await self._arrive()
        return Standing()

    async def now_ms(self) -> int:
        return (await self._arrive())[2]

    async def secret(self) -> bytes:
        await self._arrive()
        self._secret = self._secret or secrets.token_bytes(32)
        return self._secret

    # commands and lists

    async def post(self, request: PostRequest) -> Posted:
        chat, bucket, now = await self._arrive(request.chat_id)
        owner = chat.meta.get("owner")
        is_deleted = "deleted" in chat.meta
        if owner is not None and owner != request.owner:
            return Posted(PostOutcome.FOREIGN)
        if is_deleted and request.kind != "import":
            return Posted(PostOutcome.GONE)
        if owner is None and not request.creates:
            return Posted(PostOutcome.UNKNOWN)
        seen = chat.recall(request.request_id)
        if seen is not None:
            digest, nonce = seen.split(" ")
            if nonce == request.nonce:
                return Posted(PostOutcome.ACCEPTED)
            return Posted(PostOutcome.DUPLICATE if digest == request.digest else PostOutcome.MISMATCH)
        if request.about and chat.recall(request.about) is not None:
            return Posted(PostOutcome.DUPLICATE)
        queued = int(chat.meta.get("queue", 0)) if request.kind in QUEUE_COUNTS else 0
        if len(chat.inbox) + queued >= INBOX_MAX[request.kind]:
            return Posted(PostOutcome.FULL)

        self._keep(request.chat_id, chat)
        chat.meta["owner"] = request.owner
        chat.meta.setdefault("created_at", str(now))
        chat.meta.pop("deleted", None)
        chat.expires_at_ms = None
        inbox_id = chat.lay_down(request.request_id, request.principal, request.body, now)
        chat.remember(request.request_id, f"{request.digest} {request.nonce}", now)
        self._wake(request.chat_id, bucket, now)
        return Posted(PostOutcome.ACCEPTED, inbox_id)

    def _wake(self, chat_id: str, bucket: Bucket, now: int) -> None:
        score = bucket.due.get(chat_id)
        worker = bucket.own.get(chat_id)
        if worker is None:
            if score is None or now < score:
                bucket.due[chat_id] = now
                self.ring(self.bucket_of(chat_id))
            return
        bucket.due.setdefault(chat_id, now)
        if self._switchboard.publish(f"mail:{worker}", chat_id.encode()) == 0:
            bucket.due[chat_id] = min(bucket.due[chat_id], now + FAST_TAKEOVER_MS)

    async def read_inbox(self, chat_id: str, limit: int) -> list[InboxEntry]:
        chat, _, _ = await self._arrive(chat_id)
        return list(chat.inbox.values())[:limit]

    async def dead_letter(self, chat_id: str, entry: InboxEntry, reason: str) -> None:
        await self._arrive(chat_id)
        self.dead = [*self.dead, (chat_id, entry, reason)][-DEAD_MAX:]

    async def meta(self, chat_id: str) -> ChatMeta | None:
        chat, _, _ = await self._arrive(chat_id)
        return read_meta(chat_id, [chat.meta.get(name) for name in META_FIELDS])

    async def list_chats(self, owner: str, limit: int, after: ListCursor | None = None) -> ChatPage:
        await self._arrive()
        cursors = sorted(
            (
                ListCursor(last_active, chat_id)
                for bucket in self._buckets
                for chat_id, last_active in bucket.chats.get(owner, {}).items()
            ),
            reverse=True,
        )
        left = [cursor for cursor in cursors if after is None or cursor < after]
        return page_of(left[:limit], [self._values(cursor.chat_id) for cursor in left[:limit]], len(left) > limit)

    async def listed(self, owner: str, chat_ids: Sequence[str]) -> list[ChatMeta]:
        await self._arrive()
        here = [each for each in chat_ids if each in self._buckets[self.bucket_of(each)].chats.get(owner, {})]
        metas = [read_meta(chat_id, self._values(chat_id)) for chat_id in here]
        return [meta for meta in metas if meta is not None]

    async def count_chats(self, owner: str) -> int:
        await self._arrive()
        return sum(len(bucket.chats.get(owner, {})) for bucket in self._buckets)

    def _values(self, chat_id: str) -> list[str | None]:
        return [self._chats[chat_id].meta.get(name) for name in META_FIELDS]

    async def delete(self, chat_id: str, owner: str, nonce: str) -> bool:
        chat, bucket, now = await self._arrive(chat_id)
        if chat.meta.get("owner") != owner:
            return False
        if f"!{nonce}" in chat.seen or f"!{nonce}" in chat.seen_old:
            return True
        chat.remember(f"!{nonce}", "", now)
        if "deleted" in chat.meta:
            return True
        epoch = Head.parse(chat.head).entry_id.epoch if chat.head else 0
        floor = max(int(chat.meta.get("floor", 0)), epoch)
        list_owner = list_owner_of(owner, chat.meta.get("parent", ""))
        chat.clear()
        chat.meta = {"owner": owner, "deleted": str(now), "died": str(now), "floor": str(floor)}
        chat.expires_at_ms = now + DELETED_TTL_SECONDS * 1_000
        worker = bucket.own.pop(chat_id, None)
        bucket.due.pop(chat_id, None)
        bucket.chats.get(list_owner, {}).pop(chat_id, None)
        self._switchboard.publish(f"log:{chat_id}", DELETED)
        self._switchboard.publish(f"feed:{list_owner}", chat_id.encode())
        if worker is not None:
            self._switchboard.publish(f"mail:{worker}", chat_id.encode())
        return True

    # ownership

    @property
    def bucket_groups(self) -> Sequence[Sequence[int]]:
        return [range(self.buckets)]

    async def check_buckets(self, buckets: Sequence[int]) -> list[BucketStatus]:
        _, _, now = await self._arrive()
        return [
            BucketStatus(
                any(score <= now for score in here.due.values()),
                bool(here.owners),
                any(score <= now for score in here.rests.values()),
            )
            for here in (self._buckets[bucket] for bucket in buckets)
        ]

    async def claim(self, bucket: int, worker: str, limit: int, lease_ms: int, waited_ms: int = 0) -> list[Claimed]:
        _, _, now = await self._arrive()
        here = self._buckets[bucket]
        due = [each for each, score in here.due.items() if score <= now - (0 if each in here.own else waited_ms)]
        due = in_turn(due, here.due, self._chats, limit)
        claimed = [self._claimed(each, here, worker, now, lease_ms) for each in due]
        for each in claimed:
            self._lease(each.chat_id, here, worker, now + lease_ms)
        if any(score <= now for score in here.due.values()) and not here.has_token:
            self.ring(bucket)
        return claimed

    def _claimed(self, chat_id: str, bucket: Bucket, worker: str, now: int, lease_ms: int) -> Claimed:
        previous = bucket.own.get(chat_id, "")
        chat = self._chats.get(chat_id, Chat())
        left_ms = 0 if previous == worker else max(0, min(bucket.owners.get(previous, 0) - now, lease_ms))
        return Claimed(chat_id, previous, chat.waiting, chat.meta.get("claimed") != previous, left_ms)

    def _lease(self, chat_id: str, bucket: Bucket, worker: str, until_ms: int) -> None:
        bucket.lease(chat_id, worker, until_ms)
        if chat_id in self._chats and "owner" in (meta := self._chats[chat_id].meta):
            meta["claimed"] = worker  # `take` removes this field

    async def silent_owners(self, bucket: int, worker: str) -> list[str]:
        _, _, now = await self._arrive()
        here = self._buckets[bucket]
        here.owners = {owner: until_ms for owner, until_ms in here.owners.items() if until_ms > now}
        if not self._switchboard.is_watched(f"mail:{worker}"):
            return []
        return [owner for owner in here.owners if not self._switchboard.is_watched(f"mail:{owner}")]

    async def end_leases(self, bucket: int, worker: str, owner: str, cursor: str) -> EndedLeases:
        _, _, now = await self._arrive()
        here, switchboard = self._buckets[bucket], self._switchboard
        if switchboard.is_watched(f"mail:{owner}") or not switchboard.is_watched(f"mail:{worker}"):
            return EndedLeases(0, "")
        ended = [chat_id for chat_id, each in here.own.items() if each == owner and here.due[chat_id] > now]
        for chat_id in ended:
            here.due[chat_id] = now
        if ended:
            self.ring(bucket)
        return EndedLeases(len(ended), "")

    async def claim_chat(self, chat_id: str, worker: str, lease_ms: int) -> bool:
        _, bucket, now = await self._arrive(chat_id)
        if chat_id in bucket.own or chat_id not in bucket.due:
            return False
        self._lease(chat_id, bucket, worker, now + lease_ms)
        return True

    async def take(self, chat_id: str, worker: str, why: str) -> Taken:
        chat, bucket, now = await self._arrive_as_owner(chat_id, worker)
        before = chat.head
        if not before and "owner" not in chat.meta:  # the chat has expired
            self._give_up(chat_id, bucket, None)
            raise Lost(chat_id)
        self._keep(chat_id, chat)
        bucket.rests.pop(chat_id, None)
        chat.log_expires_at_ms = None
        chat.meta.pop("claimed", None)
        last, position = (Head.parse(before).entry_id, Head.parse(before).position) if before else (EntryId(0, 0), 0)
        epoch = max(last.epoch, int(chat.meta.get("floor", 0))) + 1
        salt = hashlib.sha1(f"{chat_id}{before}{now}{worker}{why}".encode(), usedforsecurity=False).hexdigest()[:4]
        entry_id = EntryId(now if now >= epoch else epoch + int(salt, 16), last.n + 1)
        digest = hashlib.sha1(f"{before}{entry_id}{worker}{why}".encode(), usedforsecurity=False).hexdigest()[:16]
        chat.head = str(Head(entry_id, digest, position))
        chat.log.append(
            RawEntry(
                entry_id=entry_id,
                head=chat.head,
                before=before,
                position=position,
                time_ms=now,
                version=0,
                fence=Fence(worker, why),
            )
        )
        self._publish(chat_id, chat.log[-1])
        return Taken(chat.head, before, chat.meta.get("owner", ""), now)

    async def beat(self, worker: str, lease_ms: int, chats: Sequence[str]) -> dict[str, Beat]:
        answer: dict[str, Beat] = {}
        for chat_id in chats:
            chat, bucket, now = await self._arrive(chat_id)
            if bucket.own.get(chat_id) != worker:
                answer[chat_id] = Beat.LOST
                continue
            bucket.lease(chat_id, worker, now + lease_ms)
            answer[chat_id] = Beat.INBOX if chat.inbox else Beat.MINE
        return answer

    async def release(
        self, chat_id: str, worker: str, head: str, when_ms: int | None, left_ms: int | None = None
    ) -> Released:
        chat, bucket, _ = await self._arrive_as_owner(chat_id, worker)
        if chat.head != head:
            raise Fenced(chat_id)
        if chat.inbox:
            return Released.MORE
        self._give_up(chat_id, bucket, when_ms)
        if left_ms is not None:
            bucket.rests[chat_id] = left_ms
        return Released.OK

    async def left_rests(self, bucket: int, limit: int, again_ms: int) -> list[str]:
        _, _, now = await self._arrive()
        rests = self._buckets[bucket].rests
        left = [chat_id for chat_id, left_ms in rests.items() if left_ms <= now][:limit]
        rests.update(dict.fromkeys(left, now + again_ms))
        return left

    async def compact(self, chat_id: str, head: str, compacted: Compacted | None) -> bool:
        chat, bucket, now = await self._arrive(chat_id)
        if chat.head and (chat.head != head or chat_id in bucket.own):
            return False
        bucket.rests.pop(chat_id, None)
        if not chat.head:
            return False
        if compacted is not None and not chat.is_compacted:
            chat.compact(compacted, now)
        return True

    async def handover(self, chat_id: str, worker: str, delay_ms: int) -> None:
        _, bucket, now = await self._arrive_as_owner(chat_id, worker)
        self._give_up(chat_id, bucket, now + delay_ms)
        if delay_ms == 0:
            self.ring(self.bucket_of(chat_id))

    async def quarantine(self, chat_id: str, worker: str, until_ms: int) -> None:
        _, bucket, _ = await self._arrive_as_owner(chat_id, worker)
        self._give_up(chat_id, bucket, until_ms)

    async def _arrive_as_owner(self, chat_id: str, worker: str) -> tuple[Chat, Bucket, int]:
        """Raises Lost when another worker owns the chat."""
        chat, bucket, now = await self._arrive(chat_id)
        if bucket.own.get(chat_id) != worker:
            raise Lost(chat_id)
        return chat, bucket, now

    @staticmethod
    def _give_up(chat_id: str, bucket: Bucket, when_ms: int | None) -> None:
        del bucket.own[chat_id]
        if when_ms is None:
            bucket.due.pop(chat_id, None)
        else:
            bucket.due[chat_id] = when_ms
