"""Stores the traces and allowances of the in-memory store, like `redis/traces.py` and its scripts."""

from collections.abc import Awaitable, Callable, Sequence

from threadcast.store.bounds import TRACES_MAX_COUNT
from threadcast.store.memory.records import Bucket, Chat
from threadcast.store.ports import AllowanceSpent, TraceRecord
from threadcast.store.redis.traces import each_once

__all__ = ["MemoryTraces"]

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class MemoryTraces:
    """Stores traces and counts allowances for `MemoryStore`."""

    _arrive: Callable[..., Awaitable[tuple[Chat, Bucket, int]]]

    def __init__(self) -> None:
        super().__init__()
        self._allowances: dict[str, dict[str, int]] = {}

    async def put_traces(
        self, chat_id: str, owner: str, records: Sequence[TraceRecord], ttl_seconds: int, replaces: Sequence[str] = ()
    ) -> bool:
        chat, _, now = await self._arrive(chat_id)
        if chat.meta.get("owner") != owner or "deleted" in chat.meta:
            return False
        first = len(chat.traces) - len(replaces)
        if first < 0 or [record.key for _, record in chat.traces[first:]] != [*replaces]:
            return False
        chat.traces = [*chat.traces[:first], *((owner, record) for record in records)][-TRACES_MAX_COUNT:]
        chat.traces_expire_at_ms = now + ttl_seconds * 1_000
        return True

    async def read_traces(self, chat_id: str, owner: str) -> list[TraceRecord]:
        chat, _, _ = await self._arrive(chat_id)
        return each_once(record for whose, record in chat.traces if whose == owner)

    async def newest_traces(self, chat_id: str, owner: str, count: int) -> list[TraceRecord]:
        chat, _, _ = await self._arrive(chat_id)
        return [record for whose, record in chat.traces[-count:] if whose == owner]

    async def spend_allowance(self, principal_id: str, allowance: str, per_hour: int, per_day: int) -> AllowanceSpent:
        _, _, now = await self._arrive()
        allowances = {each: at for each, at in self._allowances.get(principal_id, {}).items() if at > now - DAY_MS}
        self._allowances[principal_id] = allowances
        if allowance in allowances:
            return AllowanceSpent(False)
        wait_ms = 0
        for bound, window_ms in ((per_hour, HOUR_MS), (per_day, DAY_MS)):
            within = [at for at in allowances.values() if at > now - window_ms]
            if 0 < bound <= len(within):
                wait_ms = max(wait_ms, within[-bound] + window_ms - now)
        if wait_ms:
            return AllowanceSpent(False, wait_ms)
        allowances[allowance] = now
        return AllowanceSpent(True)

    async def return_allowance(self, principal_id: str, allowance: str) -> None:
        await self._arrive()
        self._allowances.get(principal_id, {}).pop(allowance, None)
