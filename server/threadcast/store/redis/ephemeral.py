"""Ephemeral pub/sub messages between web processes: changes of running streams, presence, typing.

A message has a topic and a payload of bytes, whose content `fanout/` defines. `RedisStore` in `store.py` inherits from
the class of this module. A message may be lost, so a sender that needs an answer waits with a deadline.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from threadcast.store.redis.part import RedisPart

__all__ = ["RedisPubSub"]


class RedisPubSub(RedisPart):
    """Publishes and subscribes for `RedisStore`."""

    async def publish(self, topic: str, payload: bytes) -> int:
        return int(await self._redis.send(b"PUBLISH", self._keys.topic_channel(topic), payload))

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncIterator[AsyncIterator[bytes | None]]:
        async with self._channels.subscribe([self._keys.topic_channel(topic)]) as listener:
            yield listener
