"""Defines the chats and buckets of the in-memory store, which correspond to the keys in `redis/keys.py`.

The records have no clock; callers pass the time. Expired records are deleted when they are read, like Redis's keys.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from threadcast.chat.entries import RawEntry
from threadcast.store.bounds import (
    RESUME_MAX_BYTES,
    RESUME_MAX_ENTRIES,
    RESUME_SECONDS,
    SEEN_GENERATION,
    SEEN_TTL_SECONDS,
)
from threadcast.store.ports import Compacted, InboxEntry, TraceRecord, WaitingRun
from threadcast_protocol.wire.blobs import Blob

__all__ = ["Bucket", "Chat", "KeptBlob", "first_of", "in_turn"]


def first_of(entries: Sequence[RawEntry], max_bytes: int) -> list[RawEntry]:
    """Return the first entries that together have at most `max_bytes`, or the first entry alone if it is larger."""
    page: list[RawEntry] = []
    size = 0
    for entry in entries:
        size += len(entry.events) + len(entry.facts) + len(entry.acks)
        if page and size > max_bytes:
            break
        page.append(entry)
    return page


@dataclass
class KeptBlob:
    """A stored blob. `expires_at_ms` is None for a blob that lives as long as its chat."""

    blob: Blob
    expires_at_ms: int | None

    def is_over(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms

    def hold(self, until_ms: int) -> None:
        if self.expires_at_ms is not None:
            self.expires_at_ms = max(self.expires_at_ms, until_ms)


@dataclass
class Chat:
    """One chat. `expires_at_ms` applies to the log, the inbox and the meta; blobs, traces and the two generations of
    `seen` have expiry times of their own."""

    log: list[RawEntry] = field(default_factory=list)
    head: str = ""
    log_expires_at_ms: int | None = None
    snap: tuple[str, int, bytes] | None = None
    history: list[bytes] = field(default_factory=list)
    inbox: dict[str, InboxEntry] = field(default_factory=dict)
    last_inbox_id: tuple[int, int] = (0, 0)
    meta: dict[str, str] = field(default_factory=dict)
    expires_at_ms: int | None = None
    blobs: dict[str, KeptBlob] = field(default_factory=dict)
    blobs_owner: str = ""
    traces: list[tuple[str, TraceRecord]] = field(default_factory=list)
    traces_expire_at_ms: int = 0
    seen: dict[str, str] = field(default_factory=dict)
    seen_expires_at_ms: int = 0
    seen_old: dict[str, str] = field(default_factory=dict)
    seen_old_expires_at_ms: int = 0

    def expire(self, now_ms: int) -> None:
        if self.expires_at_ms is not None and self.expires_at_ms <= now_ms:
            blobs, owner, traces = self.blobs, self.blobs_owner, self.traces
            self.clear()
            self.blobs, self.blobs_owner, self.traces = blobs, owner, traces  # these have expiry times of their own
        if self.log_expires_at_ms is not None and self.log_expires_at_ms <= now_ms:
            self.log = []
        self.blobs = {hash: kept for hash, kept in self.blobs.items() if not kept.is_over(now_ms)}
        if self.traces_expire_at_ms <= now_ms:
            self.traces = []
        if self.seen_expires_at_ms <= now_ms:
            self.seen = {}
        if self.seen_old_expires_at_ms <= now_ms:
            self.seen_old = {}

    def clear(self) -> None:
        """Delete everything except the remembered request ids."""
        self.log, self.head, self.snap, self.inbox, self.meta = [], "", None, {}, {}
        self.log_expires_at_ms = None
        self.history = []
        self.last_inbox_id = (0, 0)
        self.expires_at_ms = None
        self.blobs, self.blobs_owner = {}, ""
        self.traces = []

    def compact(self, compacted: Compacted, now_ms: int) -> None:
        """Set the checkpoint and the history, and trim the log, like the script `compact`."""
        self.snap = (self.head, compacted.version, compacted.checkpoint)
        if compacted.part:
            kept = self.history[:-1] if compacted.replaces_last else self.history
            self.history = [*kept, compacted.part][compacted.drop_first :]
        if compacted.trim is not None:
            self.log = [entry for entry in self.log if entry.entry_id >= compacted.trim]
        self.log = self.log[-RESUME_MAX_ENTRIES:]
        size = sum(len(entry.events) for entry in self.log)
        if size > RESUME_MAX_BYTES:  # the average size gives the number to keep, as in the script
            self.log = self.log[-(len(self.log) * RESUME_MAX_BYTES // size) :]
        self.log_expires_at_ms = now_ms + RESUME_SECONDS * 1_000

    @property
    def is_compacted(self) -> bool:
        """Whether the checkpoint contains the whole log, whose entries expire."""
        return self.log_expires_at_ms is not None

    @property
    def waiting(self) -> WaitingRun | None:
        """The waiting run, if the chat needs a worker only for that run."""
        if self.inbox or not self.meta.get("waits"):
            return None
        return WaitingRun(self.meta["owner"], self.meta["waits"])

    def recall(self, request_id: str) -> str | None:
        return self.seen.get(request_id) or self.seen_old.get(request_id)

    def remember(self, request_id: str, value: str, now_ms: int) -> None:
        if len(self.seen) >= SEEN_GENERATION:
            self.seen_old, self.seen_old_expires_at_ms = self.seen, self.seen_expires_at_ms
            self.seen = {}
        self.seen[request_id] = value
        self.seen_expires_at_ms = now_ms + SEEN_TTL_SECONDS * 1_000

    def lay_down(self, request_id: str, principal: bytes, body: bytes, now_ms: int) -> str:
        """Append the command to the inbox. Like the ids of `XADD *`, the id increases even when the clock goes
        backwards."""
        last_ms, n = self.last_inbox_id
        self.last_inbox_id = (now_ms, 0) if now_ms > last_ms else (last_ms, n + 1)
        inbox_id = f"{self.last_inbox_id[0]}-{self.last_inbox_id[1]}"
        self.inbox[inbox_id] = InboxEntry(inbox_id, request_id, principal, body)
        return inbox_id


def in_turn(due: Sequence[str], scores: Mapping[str, int], chats: Mapping[str, Chat], limit: int) -> list[str]:
    """Return up to `limit` chats of `due`, oldest first. If `due` has more chats, the first chat of each principal is
    returned, then the second chat of each principal, and so on."""
    due = sorted(due, key=lambda chat_id: (scores[chat_id], chat_id))
    if len(due) <= limit:
        return due
    counts: Counter[str] = Counter()
    turns: list[tuple[int, int, str]] = []
    for index, chat_id in enumerate(due):
        owner = chats[chat_id].meta.get("owner", "") if chat_id in chats else ""
        counts[owner] += 1
        turns.append((counts[owner], index, chat_id))
    return [chat_id for _, _, chat_id in sorted(turns)[:limit]]


@dataclass
class Bucket:
    due: dict[str, int] = field(default_factory=dict)
    rests: dict[str, int] = field(default_factory=dict)  # when another worker may compact the log of a released chat
    own: dict[str, str] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)  # the time when each worker's last lease here ends
    chats: dict[str, dict[str, int]] = field(default_factory=dict)
    has_token: bool = False

    def lease(self, chat_id: str, worker: str, until_ms: int) -> None:
        """Give the chat to `worker`, or renew the lease of `worker`."""
        self.due[chat_id] = until_ms
        self.own[chat_id] = worker
        self.owners[worker] = max(until_ms, self.owners.get(worker, 0))
