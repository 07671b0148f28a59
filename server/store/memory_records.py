"""What the in-memory store holds: chats and buckets. The twin of `keys.py`.

Plain records without a clock: times come in. They expire when they are looked at, as Redis's do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.blobs import Blob
from protocol.entries import RawEntry
from server.store.bounds import SEEN_GENERATION, SEEN_TTL_SECONDS
from server.store.port import InboxEntry, TraceRecord

__all__ = ["Bucket", "Chat", "KeptBlob", "first_of"]


def first_of(entries: Sequence[RawEntry], max_bytes: int) -> list[RawEntry]:
    """Return the first entries that together have at most `max_bytes`; the very first one even if it is larger."""
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
    """`expires_at_ms` None: as long as the chat."""

    blob: Blob
    expires_at_ms: int | None

    def is_over(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms

    def hold(self, until_ms: int) -> None:
        if self.expires_at_ms is not None:
            self.expires_at_ms = max(self.expires_at_ms, until_ms)


@dataclass
class Chat:
    """One chat. `expires_at_ms` is the life of all but `seen`, whose two generations have their own."""

    log: list[RawEntry] = field(default_factory=list)
    head: str = ""
    snap: tuple[str, int, bytes] | None = None
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
            self.blobs, self.blobs_owner, self.traces = blobs, owner, traces  # each has a time of its own
        self.blobs = {hash: kept for hash, kept in self.blobs.items() if not kept.is_over(now_ms)}
        if self.traces_expire_at_ms <= now_ms:
            self.traces = []
        if self.seen_expires_at_ms <= now_ms:
            self.seen = {}
        if self.seen_old_expires_at_ms <= now_ms:
            self.seen_old = {}

    def clear(self) -> None:
        """Everything but the memory of request ids."""
        self.log, self.head, self.snap, self.inbox, self.meta = [], "", None, {}, {}
        self.last_inbox_id = (0, 0)
        self.expires_at_ms = None
        self.blobs, self.blobs_owner = {}, ""
        self.traces = []

    def recall(self, request_id: str) -> str | None:
        return self.seen.get(request_id) or self.seen_old.get(request_id)

    def remember(self, request_id: str, value: str, now_ms: int) -> None:
        if len(self.seen) >= SEEN_GENERATION:
            self.seen_old, self.seen_old_expires_at_ms = self.seen, self.seen_expires_at_ms
            self.seen = {}
        self.seen[request_id] = value
        self.seen_expires_at_ms = now_ms + SEEN_TTL_SECONDS * 1_000

    def lay_down(self, request_id: str, principal: bytes, body: bytes, now_ms: int) -> str:
        """As `XADD *` numbers: never backwards, also when the clock is."""
        last_ms, n = self.last_inbox_id
        self.last_inbox_id = (now_ms, 0) if now_ms > last_ms else (last_ms, n + 1)
        inbox_id = f"{self.last_inbox_id[0]}-{self.last_inbox_id[1]}"
        self.inbox[inbox_id] = InboxEntry(inbox_id, request_id, principal, body)
        return inbox_id


@dataclass
class Bucket:
    due: dict[str, int] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)
    chats: dict[str, dict[str, int]] = field(default_factory=dict)
    has_token: bool = False
