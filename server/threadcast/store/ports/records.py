"""Records that the store keeps beside the logs: traces of runs, and the quotas of callers."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

__all__ = ["AllowanceSpent", "Allowances", "TraceRecord", "TraceRecords"]


class TraceRecord(msgspec.Struct, frozen=True):
    """A part of a run's trace, or with the empty `run_id` parts of several runs. `key` is unique, so that a record
    stored twice is read once. `data` is packed (`trace_records.py`); the store does not parse it."""

    run_id: str
    key: str
    data: bytes


class AllowanceSpent(msgspec.Struct, frozen=True):
    """The result of counting a run against a quota. `is_new`: this call counted the run, and `return_allowance` can
    undo the count. `wait_ms` above 0: the run was not counted; the quota admits another run after this time."""

    is_new: bool
    wait_ms: int = 0


class TraceRecords(Protocol):
    """Keeps the traces of runs for a limited time."""

    async def put_traces(
        self, chat_id: str, owner: str, records: Sequence[TraceRecord], ttl_seconds: int, *, replaces: str = ""
    ) -> bool:
        """Store records with the owner's chat and keep all its records for another `ttl_seconds`; the oldest beyond the
        bound are deleted. If `replaces` is not '', the records replace the newest record, which must have this key.
        Returns False, and stores nothing, when the owner has no such chat, or the newest record has another key than
        `replaces`."""

    async def last_trace(self, chat_id: str, owner: str) -> TraceRecord | None:
        """Return the newest record of the owner's chat."""

    async def read_traces(self, chat_id: str, owner: str) -> list[TraceRecord]:
        """Return the records of the owner's chat that are still held, oldest first."""


class Allowances(Protocol):
    """Counts the runs of each caller against the caller's quotas."""

    async def spend_allowance(self, principal_id: str, allowance: str, per_hour: int, per_day: int) -> AllowanceSpent:
        """Count the run that `allowance` names, unless it was counted before or the caller has reached the bound for
        the last hour or day; a bound of 0 means no bound."""

    async def return_allowance(self, principal_id: str, allowance: str) -> None:
        """Undo `spend_allowance`, because the command was not accepted."""
