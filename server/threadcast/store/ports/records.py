"""Defines the records that the store keeps beside the logs: traces of runs, and the runs that count against quotas."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

__all__ = ["AllowanceSpent", "Allowances", "TraceRecord", "TraceRecords"]


class TraceRecord(msgspec.Struct, frozen=True):
    """A part of a run's trace. A record whose `run_id` is empty contains parts of several runs. `key` is unique, so
    that a record that was stored twice is read only once. `data` is packed (`trace_records.py`); the store does not
    parse `data`."""

    run_id: str
    key: str
    data: bytes


class AllowanceSpent(msgspec.Struct, frozen=True):
    """The result of counting a run against a quota. `is_new` is True if this call counted the run; `return_allowance`
    can undo the count. If `wait_ms` is above 0, the run was not counted, and the quota admits another run after
    `wait_ms`."""

    is_new: bool
    wait_ms: int = 0


class TraceRecords(Protocol):
    """Keeps the traces of runs for a limited time."""

    async def put_traces(
        self, chat_id: str, owner: str, records: Sequence[TraceRecord], ttl_seconds: int, replaces: Sequence[str] = ()
    ) -> bool:
        """Store records with the owner's chat, and keep all records of the chat for another `ttl_seconds`. The oldest
        records above TRACES_MAX_COUNT are deleted. The new records replace the newest records of the chat, whose keys
        must be `replaces`, oldest first. Returns False, and stores nothing, when the owner has no such chat or the
        newest records have other keys."""

    async def newest_traces(self, chat_id: str, owner: str, count: int) -> list[TraceRecord]:
        """Return up to `count` newest records of the owner's chat, oldest first, which `put_traces` can replace."""

    async def read_traces(self, chat_id: str, owner: str) -> list[TraceRecord]:
        """Return the stored records of the owner's chat, oldest first."""


class Allowances(Protocol):
    """Counts the runs of each caller against the caller's quotas."""

    async def spend_allowance(self, principal_id: str, allowance: str, per_hour: int, per_day: int) -> AllowanceSpent:
        """Count the run that has the name `allowance`. A run is not counted if it was counted before, or if the caller
        has reached the bound for the last hour or day. A bound of 0 means no bound."""

    async def return_allowance(self, principal_id: str, allowance: str) -> None:
        """Undo `spend_allowance`, because the command was not accepted."""
