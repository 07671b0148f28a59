"""What web processes tell each other through Redis and nobody stores: changes of running streams, presence, typing.

It knows topics and bytes, never what they mean (`relay/many.py` and `relay/presence.py` do). `redis_store.py` combines
it with the other nouns. The rule: a whisper may be lost, so whoever needs an answer waits for it with a deadline.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from server.store.channels import Subscriptions
from server.store.connection import Commands
from server.store.keys import Keys

__all__ = ["RedisWhispers"]


class RedisWhispers:
    """The part of the store that only passes on."""

    _redis: Commands
    _keys: Keys
    _channels: Subscriptions

    async def whisper(self, topic: str, payload: bytes) -> int:
        return int(await self._redis.send(b"PUBLISH", self._keys.whisper_channel(topic), payload))

    @asynccontextmanager
    async def overhear(self, topic: str) -> AsyncIterator[AsyncIterator[bytes | None]]:
        async with self._channels.subscribe([self._keys.whisper_channel(topic)]) as listener:
            yield listener
