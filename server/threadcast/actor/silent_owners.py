"""Finds dead owners, whose inbox signals have no listener any more (DISPATCH §5).

The kernel closes the connections of a killed process at once, and the store then counts no listener on the process's
channel. The lease of a killed process ends only seconds later. A live worker can also lack a listener, for a moment or
after a restart of the store. So an owner counts as dead only after two checks, and a worker checks others only if its
own subscription is older than a lease. `Host` requests the checks, and claims the chats that become due.
"""

import time

import anyio

from threadcast.store.ports import Claims, WorkerSignals

__all__ = ["SilentOwners"]

LOOK_GAP_SECONDS = 0.15
"""Minimum seconds between the two checks of an owner. A worker whose connection was closed subscribes again within some
10 ms, because `store/redis/channels.py` makes the first attempt at once."""

OWNER_CALLS_MAX = 1_000
"""The maximum number of calls for one owner in one bucket; each call checks some 200 chats."""


class SilentOwners:
    """Checks for one worker whether other workers have died. `signals` is this worker's subscription, None until it has
    subscribed."""

    def __init__(self, store: Claims, worker: str, lease_seconds: float) -> None:
        self._store = store
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._known: dict[int, set[str]] = {}  # The silent owners of each bucket that were passed to `judge`.
        self._looking: set[int] = set()  # Buckets whose check has no answer yet.
        self.signals: WorkerSignals | None = None

    def is_unheard(self, bucket: int) -> bool:
        """Return whether this worker has lost its own subscription. The worker then claims no chats, since other
        workers would take them over."""
        return self.signals is not None and self.signals.heard_since(bucket) is None

    async def look(self, bucket: int) -> list[str]:
        """Return the owners that this check is the first to find silent; pass each of them to `judge`. Raises
        Failed."""
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
        """Check the owner a second time; if the owner is still silent, make its chats due. Returns whether chats became
        due. Raises Failed; a later check finds the owner again."""
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
        """Return whether this worker has listened without interruption for the duration of a lease; in a new worker,
        return whether the store has run for that time. A restart or a promotion of the store ends all subscriptions,
        and workers subscribe again one by one."""
        since = None if self.signals is None else self.signals.heard_since(bucket)
        return since is not None and time.monotonic() - since >= self._lease_seconds
