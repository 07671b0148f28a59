"""Stores the newest traces of a chat's runs in Redis for some hours, and counts the runs of callers for quotas.

Records are bytes, which are returned unchanged. `RedisStore` in `store.py` inherits from the class of this module. The
script `delete` deletes the traces with the chat. Records belong to the chat's owner. A deleted chat accepts no further
records, even if its worker sends them later. All web processes count the runs of a principal in one sorted set per
principal, which has the runs of the last day. The same run is never counted twice.
"""

from collections.abc import Iterable, Sequence

from threadcast.store.bounds import TRACES_MAX_COUNT
from threadcast.store.ports import AllowanceSpent, TraceRecord
from threadcast.store.redis.connection import Reply, Value
from threadcast.store.redis.part import RedisPart

__all__ = ["RedisTraces", "each_once"]


class RedisTraces(RedisPart):
    """Stores traces and counts allowances for `RedisStore`."""

    async def put_traces(
        self, chat_id: str, owner: str, records: Sequence[TraceRecord], ttl_seconds: int, replaces: Sequence[str] = ()
    ) -> bool:
        keys = self._keys.chat(chat_id)
        arguments: list[Value] = [owner, ttl_seconds, TRACES_MAX_COUNT, len(replaces), *replaces]
        arguments += (_stored(owner, record) for record in records)
        return bool(await self._redis.call("trace_put", (keys.meta, keys.traces), *arguments) == b"OK")

    async def read_traces(self, chat_id: str, owner: str) -> list[TraceRecord]:
        keys = self._keys.chat(chat_id)
        older, found = await self._redis.all([(b"XRANGE", keys.trace, b"-", b"+"), (b"LRANGE", keys.traces, 0, -1)])
        return each_once([*_older_records_of(older, owner), *_records_of(found, owner)])

    async def newest_traces(self, chat_id: str, owner: str, count: int) -> list[TraceRecord]:
        found = await self._redis.send(b"LRANGE", self._keys.chat(chat_id).traces, -count, -1)
        return list(_records_of(found, owner))

    async def spend_allowance(self, principal_id: str, allowance: str, per_hour: int, per_day: int) -> AllowanceSpent:
        outcome, wait_ms = await self._redis.call(
            "allowance_spend", (self._keys.allowances(principal_id),), allowance, per_hour, per_day
        )
        return AllowanceSpent(outcome == b"NEW", int(wait_ms))

    async def return_allowance(self, principal_id: str, allowance: str) -> None:
        await self._redis.call("allowance_return", (self._keys.allowances(principal_id),), allowance)


def _stored(owner: str, record: TraceRecord) -> bytes:
    return f"{record.key} {record.run_id} {owner}\n".encode() + record.data


def _records_of(found: Reply, owner: str) -> Iterable[TraceRecord]:
    for stored in found:
        line, _, data = stored.partition(b"\n")
        key, run_id, whose = line.decode().split(" ", 2)
        if whose == owner:
            yield TraceRecord(run_id, key, data)


def _older_records_of(found: Reply, owner: str) -> Iterable[TraceRecord]:
    """Read the stream that older versions wrote. A list has replaced it, because the first node of a stream takes 4 kB
    even for a small record."""
    for _, fields in found:  # older versions wrote the fields o, r, k and d in this order
        if fields[1] == owner.encode():
            yield TraceRecord(fields[3].decode(), fields[5].decode(), fields[7])


def each_once(records: Iterable[TraceRecord]) -> list[TraceRecord]:
    """Return the last record of each key, because a repeated call of `put_traces` stores a record a second time."""
    return list({record.key: record for record in records}.values())
