"""Who must look at which chat, and when: claim, take, beat, release, hand over, the bell and the mail, in Redis.

It does not know why a chat needs somebody. `redis_store.py` combines it with the other nouns. The rule: the lease in
`due` and `own` only avoids double work; the fence that `take` writes is what makes an owner.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from redis.asyncio.connection import AbstractConnection

from server.deadlines import Deadline
from server.store.bounds import BEAT_BATCH
from server.store.channels import Subscriptions
from server.store.cluster import Cluster
from server.store.cluster_bell import cluster_bell
from server.store.connection import CONNECT_TIMEOUT_SECONDS, Redis, explain_error, pack
from server.store.keys import Keys
from server.store.news import Mail
from server.store.port import Beat, Claimed, DueBell, Fenced, Lost, Released, Taken

__all__ = ["RedisDispatch"]

BLOCK_GRACE_SECONDS = 2.0
"""A blocking read that is not answered this long after its own time is up is half open (DESIGN §3)."""


class _RedisBell:
    """BLPOP over the bells of all buckets, on a connection of its own."""

    def __init__(self, redis: Redis, keys: Keys, connection: AbstractConnection) -> None:
        self._redis = redis
        self._keys = keys
        self._connection = connection
        self._bells = keys.bells()
        self._first = 0

    async def wait(self, timeout_seconds: float) -> int | None:
        """Raises Unavailable. A token popped by a call that is cancelled or fails is lost; the sweep finds the chat."""
        # BLPOP serves its first key first: without turning the order, a busy bucket would starve the others.
        order = self._bells[self._first :] + self._bells[: self._first]
        self._first = (self._first + 1) % len(self._bells)
        # 0 would mean for ever to Redis.
        block_seconds = f"{max(timeout_seconds, 0.001):.3f}"
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await self._redis.route.open(self._connection)
            async with Deadline(float(block_seconds) + BLOCK_GRACE_SECONDS):
                command = pack(b"BLPOP", *order, block_seconds)
                await self._connection.send_packed_command(command, False)
                reply = await self._connection.read_response()
        except Exception as wrong:  # boundary: the foreign errors of this connection
            self._redis.route.leave_if_demoted(self._connection, wrong)
            raise explain_error(wrong) from None
        return None if reply is None else self._bells.index(reply[0])

    async def put_back(self, bucket: int) -> None:
        await self._redis.call("ring", (self._keys.bell(bucket),))


class RedisDispatch:
    """The part of the store that finds an owner for a chat."""

    _redis: Redis | Cluster
    _keys: Keys
    _channels: Subscriptions

    async def claim(self, bucket: int, worker: str, limit: int, lease_ms: int) -> list[Claimed]:
        keys = (self._keys.due(bucket), self._keys.own(bucket), self._keys.bell(bucket))
        found = await self._redis.call("claim", keys, worker, limit, lease_ms)
        return [
            Claimed(chat_id.decode(), previous.decode())
            for chat_id, previous in zip(found[::2], found[1::2], strict=True)
        ]

    async def take(self, chat_id: str, worker: str, why: str) -> Taken:
        keys = self._keys.chat(chat_id)
        answer = await self._redis.call(
            "take", (keys.own, keys.head, keys.log, keys.meta), keys.chat_id, worker, why, keys.log_channel
        )
        if answer[0] == b"LOST":
            raise Lost(chat_id)
        _, head, previous, owner, time_ms = answer
        return Taken(head.decode(), previous.decode(), owner.decode(), int(time_ms))

    async def beat(self, worker: str, lease_ms: int, chats: Sequence[str]) -> dict[str, Beat]:
        by_bucket: dict[int, list[str]] = {}
        for chat_id in chats:
            by_bucket.setdefault(self._keys.bucket_of(chat_id), []).append(chat_id)
        calls = [
            (bucket, mine[start : start + BEAT_BATCH])
            for bucket, mine in by_bucket.items()
            for start in range(0, len(mine), BEAT_BATCH)
        ]
        answers = await asyncio.gather(*(self._beat(bucket, worker, lease_ms, part) for bucket, part in calls))
        return {chat_id: beat for answer in answers for chat_id, beat in answer.items()}

    async def _beat(self, bucket: int, worker: str, lease_ms: int, chats: list[str]) -> dict[str, Beat]:
        inboxes = [self._keys.chat(chat_id).inbox for chat_id in chats]
        letters = await self._redis.call(
            "beat", [self._keys.due(bucket), self._keys.own(bucket), *inboxes], worker, lease_ms, *chats
        )
        return dict(zip(chats, map(Beat, letters.decode()), strict=True))

    async def release(self, chat_id: str, worker: str, head: str, when_ms: int | None) -> Released:
        keys = self._keys.chat(chat_id)
        when = b"" if when_ms is None else when_ms
        answer = await self._redis.call(
            "release", (keys.own, keys.due, keys.head, keys.inbox), keys.chat_id, worker, head, when
        )
        if answer == b"LOST":
            raise Lost(chat_id)
        if answer == b"FENCED":
            raise Fenced(chat_id)
        return Released(answer.decode())

    async def handover(self, chat_id: str, worker: str, delay_ms: int) -> None:
        keys = self._keys.chat(chat_id)
        answer = await self._redis.call("handover", (keys.own, keys.due, keys.bell), keys.chat_id, worker, delay_ms)
        if answer == b"LOST":
            raise Lost(chat_id)

    async def quarantine(self, chat_id: str, worker: str, until_ms: int) -> None:
        keys = self._keys.chat(chat_id)
        answer = await self._redis.call("quarantine", (keys.own, keys.due), keys.chat_id, worker, until_ms)
        if answer == b"LOST":
            raise Lost(chat_id)

    @asynccontextmanager
    async def bell(self) -> AsyncIterator[DueBell]:
        if isinstance(self._redis, Cluster):
            async with cluster_bell(self._redis, self._keys) as many:
                yield many
            return
        connection = self._redis.route.connection()
        try:
            yield _RedisBell(self._redis, self._keys, connection)
        finally:
            with suppress(Exception):  # closing a broken connection may fail; there is nothing left to lose
                await connection.disconnect(nowait=True)

    @asynccontextmanager
    async def mail(self, worker: str) -> AsyncIterator[AsyncIterator[str | None]]:
        async with self._channels.subscribe(self._keys.mail_channels(worker)) as listener:
            yield Mail(listener)
