"""Ephemeral pub/sub messages between web processes: they are not stored, and a message without a subscriber is lost."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

__all__ = ["PubSub"]


class PubSub(Protocol):
    """Passes messages to the present subscribers in all processes."""

    async def publish(self, topic: str, payload: bytes) -> int:
        """Send to the subscribers of `topic` in all processes. Returns the number of subscribers."""

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[bytes | None]]:
        """Iterate over the payloads that are published on `topic` from now on. None means that payloads may be
        missing."""
