"""Limits the number of bytes and chats that one caller may store (SEC-5). The check comes before a command, a file or
an import is stored.

The store keeps an account of each principal (`store/ports/accounts.py`). Reading it costs 16 small commands, so small
commands of a caller far below its bounds are checked against an account that was read up to `FRESH_SECONDS` ago.
Requests that arrive at the same moment may exceed the bound by as much as `limits.bodies_per_principal_bytes` in each
process.
"""

from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import anyio

from threadcast.base.telemetry import Metrics
from threadcast.store.ports import Account, Accounts, Index
from threadcast_protocol.wire.errors import StorageFull

__all__ = ["SMALL_BYTES", "StorageBounds"]

_T = TypeVar("_T")

FRESH_SECONDS = 5.0
"""Seconds for which an account that was read is used again. In this time each command of the caller adds at most
`SMALL_BYTES`."""

SMALL_BYTES = 65_536
"""Bytes of a command above which the account is read anew."""

NEAR_SHARE = 0.9
"""Share of a bound from which on the account is read anew for every command."""

KNOWN_MAX_COUNT = 10_000
"""Maximum number of accounts in memory, some 2 MB; the least recently used account is dropped first."""

RECOUNT_SECONDS = 60.0
"""Seconds between two recounts of a principal by one process. A recount finds stored data that has expired since the
last recount. For 100,000 chats it sends small commands for up to some seconds, so callers at their bound must not cause
a recount with each request."""


class _Store(Accounts, Index, Protocol):
    """The parts of the store that report how much a principal stores, and whether a chat exists."""


class _Known:
    """An account as it was last read, plus the bytes and chats that this process has admitted since."""

    def __init__(self, account: Account, read_at: float) -> None:
        self.bytes_count = account.bytes_count
        self.chats_count = account.chats_count
        self.read_at = read_at


class StorageBounds:
    """Admits or refuses data that callers want to store. A bound of 0 means no bound."""

    def __init__(self, store: _Store, metrics: Metrics, max_bytes: int, max_chats: int) -> None:
        self._store = store
        self._metrics = metrics
        self._max_bytes = max_bytes
        self._max_chats = max_chats
        self._reserved_bytes: Counter[str] = Counter()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._recounted_at: OrderedDict[str, float] = OrderedDict()

    async def admit(self, principal_id: str, size_bytes: int, *, creates: str = "") -> None:
        """Check that the principal may store `size_bytes` more. `creates` is the id of the chat that the request
        creates unless it exists; "" if the request creates no chat.

        Raises:
            StorageFull: the principal has reached a bound, and a new count of its account confirmed this.
            Unavailable: the store does not answer.
        """
        if not self._max_bytes and not self._max_chats:
            return
        new_chats = 1 if creates else 0
        known = self._known.get(principal_id)
        is_fresh = known is not None and anyio.current_time() - known.read_at < FRESH_SECONDS
        is_far = known is not None and is_fresh and self._fits(known, size_bytes, new_chats, NEAR_SHARE)
        if known is None or not is_far or size_bytes > SMALL_BYTES:
            known = await self._read(principal_id)
            if not self._fits(known, size_bytes, new_chats) and self._may_recount(principal_id):
                await self._store.recount(principal_id)
                known = await self._read(principal_id)
            # If only the maximum number of chats is reached, messages to existing chats are admitted.
            if not self._fits(known, size_bytes, new_chats) and (
                not self._fits(known, size_bytes, 0) or await self._store.meta(creates) is None
            ):
                self._metrics.storage_refused.inc()
                raise StorageFull(self._sentence(known, size_bytes))
        known.bytes_count += size_bytes
        known.chats_count += new_chats

    @asynccontextmanager
    async def reserved(self, principal_id: str, size_bytes: int, *, creates: str = "") -> AsyncIterator[None]:
        """Admit like `admit`, and count the bytes against other requests until the end of the block, which stores them.
        Use this for files and imports, because many of them may arrive at the same moment."""
        await self.admit(principal_id, size_bytes, creates=creates)
        self._reserved_bytes[principal_id] += size_bytes
        try:
            yield
        finally:
            self._reserved_bytes[principal_id] -= size_bytes
            if not self._reserved_bytes[principal_id]:
                del self._reserved_bytes[principal_id]

    def _fits(self, known: _Known, size_bytes: int, new_chats: int, share: float = 1.0) -> bool:
        has_bytes = not self._max_bytes or known.bytes_count + size_bytes <= share * self._max_bytes
        has_chats = not (self._max_chats and new_chats) or known.chats_count + new_chats <= share * self._max_chats
        return has_bytes and has_chats

    async def _read(self, principal_id: str) -> _Known:
        known = _Known(await self._store.account(principal_id), anyio.current_time())
        known.bytes_count += self._reserved_bytes[principal_id]
        _remember(self._known, principal_id, known)
        return known

    def _may_recount(self, principal_id: str) -> bool:
        now = anyio.current_time()
        if now - self._recounted_at.get(principal_id, -RECOUNT_SECONDS) < RECOUNT_SECONDS:
            return False
        _remember(self._recounted_at, principal_id, now)
        return True

    def _sentence(self, known: _Known, size_bytes: int) -> str:
        if self._fits(known, size_bytes, 0):
            return (
                f"you have {known.chats_count} chats, and may have {self._max_chats}; delete chats to create new ones"
            )
        used, most = known.bytes_count / 1_000_000, self._max_bytes / 1_000_000
        return (
            f"your chats and files fill {used:,.1f} MB of the {most:,.1f} MB that you may store, so this does not fit; "
            "delete chats to make room"
        )


def _remember(table: OrderedDict[str, _T], principal_id: str, value: _T) -> None:
    table[principal_id] = value
    table.move_to_end(principal_id)
    if len(table) > KNOWN_MAX_COUNT:
        table.popitem(last=False)
