"""Defines ephemeral pub/sub messages between web processes. They are not stored; a message without a subscriber is
lost."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

__all__ = ["PubSub"]


class PubSub(Protocol):
    """Passes messages to the present subscribers in all processes."""

    async def publish(self, topic: str, payload: bytes) -> int:
        """Send `payload` to the subscribers of `topic` in all processes. Returns the number of subscribers."""

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[bytes | None]]:
        """Iterate over the payloads that are published on `topic` from now on. None means that payloads may be
        missing."""
