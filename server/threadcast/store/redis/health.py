"""Reports the store's health to operators: memory, disk, eviction, dead letters, and the number of listening workers.

The results are shown by `threadcast doctor`, by `threadcast dead-letters`, and by a log line at the start of a process.
This module evaluates INFO and changes nothing. A field that a server does not report causes no warning, because some
hosted servers hide a part of INFO.
"""

import time
from collections.abc import Mapping

import msgspec

from threadcast.store.bounds import DEAD_MAX
from threadcast.store.redis.inbox import DeadLetter
from threadcast.store.redis.part import RedisPart
from threadcast.store.topology.cluster import Cluster
from threadcast_protocol.wire.errors import Internal, Unavailable

__all__ = ["RedisHealth", "StoreHealth"]

MEMORY_WARN_SHARE = 0.9
"""The share of maxmemory in use at which a warning is given: early enough to add memory, or to delete chats."""

_letters = msgspec.json.Decoder(DeadLetter)


class StoreHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The values of INFO. A value that the server does not report is '', 0 or None. A `maxmemory_bytes` of 0 means that
    the store has no limit."""

    version: str = ""
    used_bytes: int = 0
    maxmemory_bytes: int | None = None
    policy: str = ""
    evicted_count: int = 0
    disk_fails: bool = False
    is_persistent: bool = False

    @staticmethod
    def of(info: Mapping[str, str]) -> "StoreHealth":
        return StoreHealth(
            version=info.get("valkey_version") or info.get("redis_version", ""),
            used_bytes=_number(info, "used_memory"),
            maxmemory_bytes=_number(info, "maxmemory") if info.get("maxmemory", "").isdigit() else None,
            policy=info.get("maxmemory_policy", ""),
            evicted_count=_number(info, "evicted_keys"),
            disk_fails="err" in (info.get("aof_last_write_status"), info.get("rdb_last_bgsave_status")),
            is_persistent=info.get("aof_enabled") == "1",
        )

    @property
    def used_share(self) -> float:
        """The used share of the memory that the store may fill, 0.0 to 1.0; 0.0 if the store has no limit."""
        return self.used_bytes / self.maxmemory_bytes if self.maxmemory_bytes else 0.0

    @property
    def warnings(self) -> list[str]:
        """Return a sentence for each problem, with its remedy."""
        found = []
        if self.policy not in ("", "noeviction"):
            found.append(
                f"the store's eviction policy is {self.policy}: it may throw away chats when its memory is full. "
                "Set maxmemory-policy noeviction"
            )
        if self.maxmemory_bytes == 0:
            found.append(
                "the store has no limit of memory: when the machine's memory is full, the system may end the store, or "
                "other programs. Set maxmemory to half of the machine's memory"
            )
        if self.evicted_count:
            found.append(f"the store has thrown away {self.evicted_count} keys since its start; chats may be damaged")
        if self.used_share > MEMORY_WARN_SHARE:
            found.append(
                f"the store uses {round(100 * self.used_share)} % of its memory ({self.used_bytes} of "
                f"{self.maxmemory_bytes} bytes); when it is full, it refuses commands. Raise maxmemory, or delete chats"
            )
        if self.disk_fails:
            found.append("the store could not write to its disk the last time it tried; free space there")
        return found


def _number(info: Mapping[str, str], name: str) -> int:
    text = info.get(name, "")
    return int(text) if text.isdigit() else 0


class RedisHealth(RedisPart):
    """Reports the store's health for `RedisStore`."""

    async def health(self) -> list[StoreHealth]:
        """Return the health of each server that can be reached. Raises Unavailable."""
        try:
            told = await self._redis.everyone(b"INFO")
        except Internal:  # a hosted server may refuse INFO
            return []
        texts = [text.decode(errors="replace") for text in told]
        return [StoreHealth.of(dict(line.split(":", 1) for line in text.splitlines() if ":" in line)) for text in texts]

    async def advice(self) -> list[str]:
        """Return the warnings of all servers, each warning once. Raises Unavailable."""
        return list(dict.fromkeys(warning for health in await self.health() for warning in health.warnings))

    async def dead_letters(self, limit: int = DEAD_MAX) -> list[DeadLetter]:
        """Return the newest `limit` dead letters of all buckets, oldest first. Raises Unavailable."""
        found = await self._redis.all(
            [(b"LRANGE", key, -limit, -1) for key in map(self._keys.dead, range(self._keys.buckets))]
        )
        letters = [_letters.decode(letter) for bucket in found for letter in bucket]
        return sorted(letters, key=lambda letter: _laid_down_at(letter.inbox_id))[-limit:]

    async def workers_count(self) -> int | None:
        """Return the number of workers that listen for inbox signals, or None when the server does not report it.

        Only the listeners of the first bucket are counted, because each worker listens in all buckets. The query reads
        the names of all channels, so it is too costly for a metric.
        """
        verb = b"SHARDCHANNELS" if isinstance(self._redis, Cluster) else b"CHANNELS"
        try:
            told = await self._redis.everyone(b"PUBSUB", verb, self._keys.inbox_signal_channels("*")[0])
        except (Internal, Unavailable):  # a hosted server may lack or forbid the command
            return None
        return len({channel for channels in told for channel in channels})

    async def oldest_due_seconds(self) -> float:
        """Return for how many seconds the oldest due chat has waited for a worker, or 0 when no chat waits. Sends one
        command per bucket in one pipeline; the number of chats does not matter. Raises Unavailable."""
        first = [(b"ZRANGE", self._keys.due(bucket), 0, 0, b"WITHSCORES") for bucket in range(self._keys.buckets)]
        told = await self._redis.all([(b"TIME",), *first])
        now_seconds = int(told[0][0]) + int(told[0][1]) / 1_000_000
        return max([0.0, *(now_seconds - float(found[1]) / 1_000 for found in told[1:] if found)])

    async def due_count(self) -> int:
        """Return the number of chats that wait for a worker. Raises Unavailable."""
        now_ms = int(time.time() * 1_000)
        ask = [(b"ZCOUNT", self._keys.due(bucket), b"-inf", now_ms) for bucket in range(self._keys.buckets)]
        return sum(await self._redis.all(ask))

    async def dead_letters_count(self) -> int:
        return sum(await self._redis.all([(b"LLEN", self._keys.dead(bucket)) for bucket in range(self._keys.buckets)]))


def _laid_down_at(inbox_id: str) -> tuple[int, int]:
    ms, _, n = inbox_id.partition("-")
    return int(ms), int(n or 0)
