"""How the store itself fares: its memory, its disk, what it would throw away, the commands that were given up, and
whether anybody works on those that wait.

For operators, not for the work of the house: `doctor`, the line at the start of a process and `threadcast dead-letters`
ask here, on a connection of the store's own. It judges what INFO tells and changes nothing. The rule: what a server
does not tell (some hosted ones hide a part) is no trouble.
"""

from collections.abc import Mapping

import msgspec

from protocol.errors import Internal, Unavailable
from server.store.bounds import DEAD_MAX
from server.store.cluster import Cluster
from server.store.connection import Commands
from server.store.inbox import DeadLetter
from server.store.keys import Keys

__all__ = ["RedisHealth", "StoreHealth"]

MEMORY_WARN_SHARE = 0.9
"""Of maxmemory in use, from which on it is said: time is left to give more, or to delete chats."""

_letters = msgspec.json.Decoder(DeadLetter)


class StoreHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What INFO told; '' and 0 for what it did not."""

    version: str = ""
    used_bytes: int = 0
    maxmemory_bytes: int = 0
    policy: str = ""
    evicted_count: int = 0
    disk_fails: bool = False
    is_persistent: bool = False

    @staticmethod
    def of(info: Mapping[str, str]) -> "StoreHealth":
        return StoreHealth(
            version=info.get("valkey_version") or info.get("redis_version", ""),
            used_bytes=_number(info, "used_memory"),
            maxmemory_bytes=_number(info, "maxmemory"),
            policy=info.get("maxmemory_policy", ""),
            evicted_count=_number(info, "evicted_keys"),
            disk_fails="err" in (info.get("aof_last_write_status"), info.get("rdb_last_bgsave_status")),
            is_persistent=info.get("aof_enabled") == "1",
        )

    @property
    def warnings(self) -> list[str]:
        """A sentence for each thing that an operator should know, with what to do about it."""
        found = []
        if self.policy not in ("", "noeviction"):
            found.append(
                f"the store's eviction policy is {self.policy}: it may throw away chats when its memory is full. "
                "Set maxmemory-policy noeviction"
            )
        if self.evicted_count:
            found.append(f"the store has thrown away {self.evicted_count} keys since its start; chats may be damaged")
        if self.maxmemory_bytes and self.used_bytes > MEMORY_WARN_SHARE * self.maxmemory_bytes:
            share = round(100 * self.used_bytes / self.maxmemory_bytes)
            found.append(
                f"the store uses {share} % of its memory ({self.used_bytes} of {self.maxmemory_bytes} bytes); when it "
                "is full, commands are refused. Raise maxmemory, or delete chats"
            )
        if self.disk_fails:
            found.append("the store could not write to its disk the last time it tried; free space there")
        return found


def _number(info: Mapping[str, str], name: str) -> int:
    text = info.get(name, "")
    return int(text) if text.isdigit() else 0


class RedisHealth:
    """The part of the store that operators ask."""

    _redis: Commands
    _keys: Keys

    async def health(self) -> list[StoreHealth]:
        """Of each server that can be reached. Raises Unavailable."""
        try:
            told = await self._redis.everyone(b"INFO")
        except Internal:  # a hosted server that does not answer INFO
            return []
        texts = [text.decode(errors="replace") for text in told]
        return [StoreHealth.of(dict(line.split(":", 1) for line in text.splitlines() if ":" in line)) for text in texts]

    async def advice(self) -> list[str]:
        """What an operator should know of them, each thing once. Raises Unavailable."""
        return list(dict.fromkeys(warning for health in await self.health() for warning in health.warnings))

    async def dead_letters(self, limit: int = DEAD_MAX) -> list[DeadLetter]:
        """Commands that were given up, the newest of each bucket last. Raises Unavailable."""
        found = await self._redis.all(
            [(b"LRANGE", key, -limit, -1) for key in map(self._keys.dead, range(self._keys.buckets))]
        )
        letters = [_letters.decode(letter) for bucket in found for letter in bucket]
        return sorted(letters, key=lambda letter: _laid_down_at(letter.inbox_id))[-limit:]

    async def workers_count(self) -> int | None:
        """Workers that listen for their mail in the first bucket, as each does in all; None: the server does not tell.

        It looks through the names of all channels there are, so it is for people and no metric.
        """
        verb = b"SHARDCHANNELS" if isinstance(self._redis, Cluster) else b"CHANNELS"
        try:
            told = await self._redis.everyone(b"PUBSUB", verb, self._keys.mail_channels("*")[0])
        except (Internal, Unavailable):  # a hosted server that has no such command, or forbids it
            return None
        return len({channel for channels in told for channel in channels})

    async def oldest_due_seconds(self) -> float:
        """How long the chat that has waited longest for a worker has done so, 0 when none waits. One pipeline of a
        command for each bucket, however many chats there are. Raises Unavailable."""
        first = [(b"ZRANGE", self._keys.due(bucket), 0, 0, b"WITHSCORES") for bucket in range(self._keys.buckets)]
        told = await self._redis.all([(b"TIME",), *first])
        now_seconds = int(told[0][0]) + int(told[0][1]) / 1_000_000
        return max([0.0, *(now_seconds - float(found[1]) / 1_000 for found in told[1:] if found)])

    async def dead_letters_count(self) -> int:
        return sum(await self._redis.all([(b"LLEN", self._keys.dead(bucket)) for bucket in range(self._keys.buckets)]))


def _laid_down_at(inbox_id: str) -> tuple[int, int]:
    ms, _, n = inbox_id.partition("-")
    return int(ms), int(n or 0)
