"""Assigns chats to workers in Redis: claim, take, beat, release, compact, hand over, the bell and the inbox signals.

`RedisStore` in `store.py` inherits from the class of this module. The lease in `due` and `own` only avoids double work;
the fence that `take` writes decides which worker owns a chat.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from redis.asyncio.connection import AbstractConnection

from threadcast.store.bounds import (
    BEAT_BATCH,
    CLAIM_LOOKED_AT,
    END_LEASES_BATCH,
    JUDGE_MS,
    LOOKS_PER_SWEEP,
    RESUME_MAX_BYTES,
    RESUME_MAX_ENTRIES,
    RESUME_SECONDS,
    TRIM_ENTRIES,
)
from threadcast.store.ports import (
    Beat,
    BucketStatus,
    Claimed,
    Compacted,
    DueBell,
    EndedLeases,
    Fenced,
    Lost,
    Released,
    Taken,
    WaitingRun,
    WorkerSignals,
)
from threadcast.store.redis import checkpoint
from threadcast.store.redis.connection import Redis, Reply, Value
from threadcast.store.redis.keys import Keys
from threadcast.store.redis.log_messages import ListenedSignals
from threadcast.store.redis.part import RedisPart
from threadcast.store.redis.slices import staged, unstaged
from threadcast.store.topology.cluster import Cluster
from threadcast.store.topology.cluster_bell import cluster_bell, pop_bell
from threadcast.store.topology.route import hang_up
from threadcast_protocol.wire.errors import Unavailable

__all__ = ["RedisDispatch"]


class _RedisBell:
    """Waits with BLPOP for the bells of all buckets, on its own connection."""

    def __init__(self, redis: Redis, keys: Keys, connection: AbstractConnection) -> None:
        self._redis = redis
        self._keys = keys
        self._connection = connection
        self._bells = keys.bells()
        self._first = 0

    async def wait(self, timeout_seconds: float) -> int | None:
        """Return the bucket whose bell rang, or None after the timeout. Raises Unavailable. If the call fails or is
        cancelled, the token that it has popped is lost; the sweep then finds the due chat."""
        # BLPOP checks its first key first. The order rotates, because one busy bucket would starve the other buckets.
        order = self._bells[self._first :] + self._bells[: self._first]
        self._first = (self._first + 1) % len(self._bells)
        bell = await pop_bell(self._redis.route, self._connection, order, timeout_seconds)
        return None if bell is None else self._bells.index(bell)

    async def put_back(self, bucket: int) -> None:
        await self._redis.call("ring", (self._keys.bell(bucket),))


class RedisDispatch(RedisPart):
    """Assigns chats to workers for `RedisStore`."""

    _redis: Redis | Cluster

    @property
    def bucket_groups(self) -> Sequence[Sequence[int]]:
        buckets = range(self._keys.buckets)
        return [(bucket,) for bucket in buckets] if isinstance(self._redis, Cluster) else [buckets]

    async def check_buckets(self, buckets: Sequence[int]) -> list[BucketStatus]:
        of = (self._keys.due, self._keys.owners, self._keys.rests)
        found = await self._redis.call("check_buckets", [key(bucket) for bucket in buckets for key in of])
        return [BucketStatus(*(bool(int(digit) & bit) for bit in (1, 2, 4))) for digit in found.decode()]

    async def claim(self, bucket: int, worker: str, limit: int, lease_ms: int, waited_ms: int = 0) -> list[Claimed]:
        keys = (self._keys.due(bucket), self._keys.own(bucket), self._keys.bell(bucket), self._keys.owners(bucket))
        found = await self._redis.call("claim", keys, worker, limit, lease_ms, CLAIM_LOOKED_AT, waited_ms)
        return [
            Claimed(
                chat_id.decode(),
                previous.decode(),
                WaitingRun(owner.decode(), rank.decode()) if rank else None,
                bool(has_begun),
                lease_left_ms,
            )
            for chat_id, previous, has_begun, lease_left_ms, owner, rank in zip(*[iter(found)] * 6, strict=True)
        ]

    async def claim_chat(self, chat_id: str, worker: str, lease_ms: int) -> bool:
        keys = self._keys.chat(chat_id)
        claimed = await self._redis.call(
            "claim_chat", (keys.due, keys.own, keys.owners, keys.meta), chat_id, worker, lease_ms
        )
        return bool(claimed)

    async def silent_owners(self, bucket: int, worker: str) -> list[str]:
        prefix = self._keys.inbox_signal_prefix(bucket)
        found = await self._redis.call("silent_owners", (self._keys.owners(bucket),), worker, prefix, LOOKS_PER_SWEEP)
        return [owner.decode() for owner in found]

    async def end_leases(self, bucket: int, worker: str, owner: str, cursor: str) -> EndedLeases:
        count, following = await self._redis.call(
            "end_leases",
            (
                self._keys.own(bucket),
                self._keys.due(bucket),
                self._keys.bell(bucket),
                self._keys.judge(bucket, owner),
            ),
            worker,
            owner,
            self._keys.inbox_signal_prefix(bucket),
            cursor,
            END_LEASES_BATCH,
            JUDGE_MS,
        )
        return EndedLeases(count, following.decode())

    async def take(self, chat_id: str, worker: str, why: str) -> Taken:
        keys = self._keys.chat(chat_id)
        _, head, previous, owner, time_ms = await self._call(
            "take",
            chat_id,
            (
                keys.own,
                keys.head,
                keys.log,
                keys.meta,
                keys.recent,
                keys.history,
                keys.snap_slices,
                keys.rests,
                keys.due,
            ),
            worker,
            why,
            keys.log_channel,
        )
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
        codes = await self._redis.call(
            "beat",
            [self._keys.due(bucket), self._keys.own(bucket), self._keys.owners(bucket), *inboxes],
            worker,
            lease_ms,
            *chats,
        )
        return dict(zip(chats, map(Beat, codes.decode()), strict=True))

    async def release(
        self, chat_id: str, worker: str, head: str, when_ms: int | None, left_ms: int | None = None
    ) -> Released:
        keys = self._keys.chat(chat_id)
        times: list[Value] = [b"" if each is None else each for each in (when_ms, left_ms)]
        names = (keys.own, keys.due, keys.head, keys.inbox, keys.rests)
        answer = await self._call("release", chat_id, names, worker, head, *times)
        if answer == b"FENCED":
            raise Fenced(chat_id)
        return Released(answer.decode())

    async def left_rests(self, bucket: int, limit: int, again_ms: int) -> list[str]:
        found = await self._redis.call("left_rests", (self._keys.rests(bucket),), limit, again_ms)
        return [chat_id.decode() for chat_id in found]

    async def compact(self, chat_id: str, head: str, compacted: Compacted | None) -> bool:
        keys = self._keys.chat(chat_id)
        names = [keys.rests, keys.head, keys.own]
        arguments: list[Value] = [chat_id, head]
        if compacted is not None:
            composed = await checkpoint.compose(head, compacted.version, compacted.checkpoint)
            staged_snap = keys.staged_snap(head.partition(" ")[0])
            slices = await staged(self._redis, staged_snap, composed.slices)
            names += [keys.snap, keys.log, keys.recent, keys.history, keys.snap_slices, staged_snap]
            arguments += [
                composed.snap,
                RESUME_SECONDS,
                RESUME_MAX_ENTRIES,
                str(compacted.trim or ""),
                compacted.part,
                b"1" if compacted.replaces_last else b"",
                compacted.drop_first,
                slices,
                TRIM_ENTRIES,
                RESUME_MAX_BYTES,
            ]
        answer = await self._redis.call("compact", names, *arguments)
        if answer == b"UNSTAGED":
            raise unstaged()
        if answer == b"LONG":
            trim = (b"XTRIM", keys.recent, b"MAXLEN", b"~", RESUME_MAX_ENTRIES, b"LIMIT", TRIM_ENTRIES)
            with suppress(Unavailable):  # entries that are not trimmed expire
                while await self._redis.send(*trim):
                    pass
        return bool(answer != b"NO")

    async def handover(self, chat_id: str, worker: str, delay_ms: int) -> None:
        keys = self._keys.chat(chat_id)
        await self._call("handover", chat_id, (keys.own, keys.due, keys.bell), worker, delay_ms)

    async def quarantine(self, chat_id: str, worker: str, until_ms: int) -> None:
        keys = self._keys.chat(chat_id)
        await self._call("quarantine", chat_id, (keys.own, keys.due), worker, until_ms)

    async def _call(self, script: str, chat_id: str, keys: Sequence[bytes], *arguments: Value) -> Reply:
        """Run a script that changes a chat of this worker. Raises Lost if the worker does not own the chat any more."""
        answer = await self._redis.call(script, keys, chat_id, *arguments)
        if answer == b"LOST" or (isinstance(answer, list) and answer[0] == b"LOST"):
            raise Lost(chat_id)
        return answer

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
            await hang_up(connection)

    @asynccontextmanager
    async def inbox_signals(self, worker: str) -> AsyncIterator[WorkerSignals]:
        channels = self._keys.inbox_signal_channels(worker)
        async with self._channels.subscribe(channels) as listener:
            yield ListenedSignals(listener, channels)
