"""Finds owners that have died: nothing listens to their inbox signals any more (DISPATCH §5).

The kernel closes the connections of a killed process at once, and the store then counts no listener on the process's
channel. A lease would end seconds later. A live worker can be without a listener, too, for a moment or after a restart
of the store, so an owner counts as dead only after two looks, and only a worker looks whose own subscription is older
than a lease. `Host` asks for looks and claims what they make due.
"""

import time

import anyio

from threadcast.store.ports import Claims, WorkerSignals

__all__ = ["SilentOwners"]

LOOK_GAP_SECONDS = 0.15
"""Seconds between the two looks at least. A worker whose connection was closed subscribes again within some 10 ms,
because `store/redis/channels.py` makes the first attempt at once."""

OWNER_CALLS_MAX = 1_000
"""The most calls for one owner in one bucket; each looks at some 200 chats."""


class SilentOwners:
    """The looks of one worker. `signals` is its own subscription, None until there is one."""

    def __init__(self, store: Claims, worker: str, lease_seconds: float) -> None:
        self._store = store
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._known: dict[int, set[str]] = {}  # by bucket: the owners that are or were judged, while they are silent
        self._looking: set[int] = set()  # buckets whose look has no answer yet
        self.signals: WorkerSignals | None = None

    def is_unheard(self, bucket: int) -> bool:
        """Return whether this worker has lost its own subscription. It then claims no chats, since others would take
        them over."""
        return self.signals is not None and self.signals.heard_since(bucket) is None

    async def look(self, bucket: int) -> list[str]:
        """Return the owners that this look, and none before, has found silent; pass each to `judge`. Raises Failed."""
        if bucket in self._looking or not self._may_look(bucket):
            return []
        self._looking.add(bucket)
        try:
            silent = set(await self._store.silent_owners(bucket, self._worker))
        finally:
            self._looking.discard(bucket)
        known = self._known.setdefault(bucket, set())
        known &= silent
        found = sorted(silent - known)
        known |= silent
        return found

    async def judge(self, bucket: int, owner: str) -> bool:
        """Look a second time; if the owner is still silent, make its chats due. Returns whether chats are due now.
        Raises Failed; a later look finds the owner again."""
        await anyio.sleep(LOOK_GAP_SECONDS)
        count, cursor, is_over = 0, "0", False
        try:
            for _ in range(OWNER_CALLS_MAX):
                if not self._may_look(bucket):
                    break
                ended = await self._store.end_leases(bucket, self._worker, owner, cursor)
                count, cursor = count + ended.count, ended.cursor
                if not cursor:
                    is_over = True
                    break
        finally:
            if not is_over:
                self._known[bucket].discard(owner)
        return count > 0

    def _may_look(self, bucket: int) -> bool:
        """Return whether this worker has listened for a lease without interruption, or in a new worker, whether the
        store has run as long. After a restart or a promotion of the store all subscriptions are gone, and workers come
        back one by one."""
        since = None if self.signals is None else self.signals.heard_since(bucket)
        return since is not None and time.monotonic() - since >= self._lease_seconds
