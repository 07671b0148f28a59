"""Defines the properties of the whole store: its clock, its buckets, its secret, and whether it accepts writes."""

from typing import Protocol

import msgspec

__all__ = ["Facts", "Standing"]


class Standing(msgspec.Struct, frozen=True, omit_defaults=True):
    """The status of a store. All fields are empty for a single server at a fixed address."""

    primary: str | None = None
    """The present address of the primary, for a store behind Sentinel."""

    nodes: tuple[str, ...] = ()
    """The addresses of the primaries, for a Cluster."""

    away: tuple[str, ...] = ()
    """A sentence for each primary that accepts no writes at present; chats on other primaries are not affected."""

    def __str__(self) -> str:
        """Return text that continues the sentence "it answers", or "" when there is nothing to add."""
        if self.primary is not None:
            return f"; the sentinels name {self.primary} as its primary"
        return f"; the nodes of the Cluster are {', '.join(self.nodes)}" if self.nodes else ""


class Facts(Protocol):
    """Reads the properties of the whole store. The number of `buckets` is fixed at the store's first start and never
    changes."""

    @property
    def buckets(self) -> int: ...

    def bucket_of(self, chat_id: str) -> int: ...

    async def now_ms(self) -> int: ...

    async def secret(self) -> bytes:
        """Return 32 random bytes, which are made at the first use and are the same in all processes of this store. The
        ids in other servers' formats are derived from this key. The key does not authenticate callers. Raises
        Unavailable."""

    async def ping(self) -> Standing:
        """Return the status of the store's servers. Raises Unavailable if no server of the store answers and accepts
        writes."""
