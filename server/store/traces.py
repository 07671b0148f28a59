"""Traces of runs beside the log in Redis: laid down for some hours, the newest of them only, gone with the chat.

It does not know what a record says: bytes in, the same bytes out. `redis_store.py` combines it with the other nouns;
`delete` drops them. The rule: records belong to the chat's owner, and a chat that is gone takes no more of them,
however late its worker comes.
"""

from collections.abc import Iterable, Sequence

from server.store.bounds import TRACES_MAX_COUNT
from server.store.connection import Commands, Value
from server.store.keys import Keys
from server.store.port import TraceRecord

__all__ = ["RedisTraces", "each_once"]


class RedisTraces:
    """The part of the store that holds traces."""

    _redis: Commands
    _keys: Keys

    async def put_traces(self, chat_id: str, owner: str, records: Sequence[TraceRecord], ttl_seconds: int) -> bool:
        keys = self._keys.chat(chat_id)
        arguments: list[Value] = [owner, ttl_seconds, TRACES_MAX_COUNT]
        for record in records:
            arguments += (record.run_id, record.key, record.data)
        return bool(await self._redis.call("trace_put", (keys.meta, keys.trace), *arguments) == b"OK")

    async def read_traces(self, chat_id: str, owner: str) -> list[TraceRecord]:
        found = await self._redis.send(b"XRANGE", self._keys.chat(chat_id).trace, b"-", b"+")
        return each_once(
            TraceRecord(fields[3].decode(), fields[5].decode(), fields[7])
            for _, fields in found  # o, r, k, d: `trace_put` writes them in this order
            if fields[1] == owner.encode()
        )


def each_once(records: Iterable[TraceRecord]) -> list[TraceRecord]:
    """Without those that were laid down a second time."""
    return list({record.key: record for record in records}.values())
