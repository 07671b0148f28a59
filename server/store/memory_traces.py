"""Traces and turns of the in-memory store, the twin of `traces.py`, `turns.py` and their scripts."""

from collections.abc import Awaitable, Callable, Sequence

from server.store.bounds import TRACES_MAX_COUNT
from server.store.memory_records import Bucket, Chat
from server.store.port import TraceRecord, TurnSpent
from server.store.traces import each_once

__all__ = ["MemoryTraces"]

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class MemoryTraces:
    """The part of the twin that holds traces and counts turns."""

    _arrive: Callable[..., Awaitable[tuple[Chat, Bucket, int]]]

    def __init__(self) -> None:
        super().__init__()
        self._turns: dict[str, dict[str, int]] = {}

    async def put_traces(self, chat_id: str, owner: str, records: Sequence[TraceRecord], ttl_seconds: int) -> bool:
        chat, _, now = await self._arrive(chat_id)
        if chat.meta.get("owner") != owner or "deleted" in chat.meta:
            return False
        chat.traces = [*chat.traces, *((owner, record) for record in records)][-TRACES_MAX_COUNT:]
        chat.traces_expire_at_ms = now + ttl_seconds * 1_000
        return True

    async def read_traces(self, chat_id: str, owner: str) -> list[TraceRecord]:
        chat, _, _ = await self._arrive(chat_id)
        return each_once(record for whose, record in chat.traces if whose == owner)

    async def spend_turn(self, principal_id: str, turn: str, per_hour: int, per_day: int) -> TurnSpent:
        _, _, now = await self._arrive()
        turns = {each: at for each, at in self._turns.get(principal_id, {}).items() if at > now - DAY_MS}
        self._turns[principal_id] = turns
        if turn in turns:
            return TurnSpent(False)
        wait_ms = 0
        for bound, window_ms in ((per_hour, HOUR_MS), (per_day, DAY_MS)):
            within = [at for at in turns.values() if at > now - window_ms]
            if 0 < bound <= len(within):
                wait_ms = max(wait_ms, within[-bound] + window_ms - now)
        if wait_ms:
            return TurnSpent(False, wait_ms)
        turns[turn] = now
        return TurnSpent(True)

    async def return_turn(self, principal_id: str, turn: str) -> None:
        await self._arrive()
        self._turns.get(principal_id, {}).pop(turn, None)
