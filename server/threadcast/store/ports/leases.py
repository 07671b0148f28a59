"""Defines the leases of chats, which record the worker that owns each chat, and the signals that tell workers about
work."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import NamedTuple, Protocol

import msgspec

from threadcast.store.ports.log import Messages
from threadcast_protocol.wire.ids import EntryId

__all__ = [
    "Beat",
    "BucketStatus",
    "Claimed",
    "Claims",
    "Compacted",
    "Compactions",
    "DueBell",
    "EndedLeases",
    "Leases",
    "Lost",
    "Released",
    "Taken",
    "WaitingRun",
    "WorkerSignals",
]


class Lost(Exception):
    """This worker no longer owns the chat. Discard the chat's state."""


class WaitingRun(msgspec.Struct, frozen=True):
    """An open run that waits until its principal has fewer active runs. `rank` is the run's rank among the principal's
    waiting runs; an append has stored the rank with its `meta`."""

    principal_id: str
    rank: str


class Claimed(msgspec.Struct, frozen=True):
    """A claimed chat. `previous` is the worker that owned the chat before and did not release it, or ''. `waiting` is
    set if the chat needs a worker only for a waiting run, and the inbox has no command. `has_begun` is False if
    `previous` claimed the chat and wrote no fence. `lease_left_ms` is above 0 if the leases of `previous` were ended
    early; for this time, `previous` may still believe that it owns the chat."""

    chat_id: str
    previous: str
    waiting: WaitingRun | None = None
    has_begun: bool = True
    lease_left_ms: int = 0


class EndedLeases(msgspec.Struct, frozen=True):
    """The result of one call of `end_leases`: the number of chats that it made due, and the cursor for the next call
    ('' at the end)."""

    count: int
    cursor: str


class Taken(msgspec.Struct, frozen=True):
    """The result of `take`: the head string of the fence, the head string before the fence ('' for a new chat), the
    chat's owner, and the store's time in Unix milliseconds."""

    head: str
    previous: str
    owner: str
    time_ms: int


class Beat(Enum):
    MINE = "."
    INBOX = "M"
    LOST = "L"


class Released(Enum):
    """The result of a release. MORE: the inbox contains a command, which the worker must handle instead of releasing
    the chat."""

    OK = "OK"
    MORE = "MORE"


class Compacted(msgspec.Struct, frozen=True):
    """The short form of a log up to its head, which replaces the log of a chat at rest (DESIGN §2).

    `checkpoint` is the state at the head, and `version` is the largest format version in the checkpoint. Entries before
    `trim` are deleted at once. The other entries are kept for another RESUME_SECONDS, for readers that resume. `part`
    is added to the history or, with `replaces_last`, replaces the last part of the history. `drop_first` is the number
    of oldest parts to delete. An empty `part` leaves the history unchanged.
    """

    checkpoint: bytes
    version: int
    trim: EntryId | None = None
    part: bytes = b""
    replaces_last: bool = False
    drop_first: int = 0


class DueBell(Protocol):
    """Notifies a worker of buckets with due chats."""

    async def wait(self, timeout_seconds: float) -> int | None:
        """Return the bucket whose bell rang, or None after the timeout."""

    async def put_back(self, bucket: int) -> None:
        """Ring the bell of the bucket again for another worker. Callers that are draining or full use this method after
        they have popped a token."""


class WorkerSignals(Messages[str | None], Protocol):
    """A worker's subscription to its inbox signals. Iterates over the ids of the worker's chats that have new commands.
    None means that the subscription was rebuilt and ids may be missing."""

    def heard_since(self, bucket: int) -> float | None:
        """Return the time when the last interruption of the subscription ended, in seconds of the monotonic clock; None
        while the connection for this bucket is lost."""


class BucketStatus(NamedTuple):
    """Whether a bucket has due chats, whether workers own chats in it, and whether a worker left logs of released chats
    uncompacted."""

    has_due: bool
    has_owners: bool
    has_left_rests: bool


class Claims(Protocol):
    """Gives each chat that needs a worker to exactly one worker."""

    @property
    def bucket_groups(self) -> Sequence[Sequence[int]]:
        """All buckets, in groups that one call can check: those of one server together, those of a cluster one by
        one."""

    async def check_buckets(self, buckets: Sequence[int]) -> list[BucketStatus]:
        """Return what there is to do in the buckets of a group."""

    async def claim(self, bucket: int, worker: str, limit: int, lease_ms: int, waited_ms: int = 0) -> list[Claimed]:
        """Take up to `limit` due chats of a bucket. If more chats are due, the chats of the principals are taken in
        turn, so that thousands of chats of one principal do not delay the chats of others. With `waited_ms`, take only
        chats that have been due for at least `waited_ms`, and chats that another worker owned and did not release."""

    async def claim_chat(self, chat_id: str, worker: str, lease_ms: int) -> bool:
        """Take this chat before it is due, because its waiting run may continue. Returns False if the chat has an owner
        or is at rest."""

    async def silent_owners(self, bucket: int, worker: str) -> list[str]:
        """Return the workers that own chats in this bucket and no longer listen for inbox signals. If a bucket has many
        owners, only some of the calls check them, and the other calls return an empty list. The list is also empty if
        `worker` itself does not listen at the server that answers."""

    async def end_leases(self, bucket: int, worker: str, owner: str, cursor: str) -> EndedLeases:
        """Make chats of `owner` in this bucket due at once, if the inbox signals of `owner` have no listener and the
        inbox signals of `worker` have a listener. One call checks some 200 owned chats; the cursor of the first call is
        "0". Only one worker at a time ends the leases of an owner."""

    def bell(self) -> AbstractAsyncContextManager[DueBell]: ...


class Leases(Protocol):
    """Keeps claimed chats for their workers until the workers release them."""

    async def take(self, chat_id: str, worker: str, why: str) -> Taken:
        """Append a fence, so that appends of former owners fail. Raises Lost, also if the chat has expired."""

    async def beat(self, worker: str, lease_ms: int, chats: Sequence[str]) -> dict[str, Beat]:
        """Renew the leases of any number of chats, in any buckets. Each script call renews at most 200 leases."""

    async def release(
        self, chat_id: str, worker: str, head: str, when_ms: int | None, left_ms: int | None = None
    ) -> Released:
        """Release the chat, and make it due again at `when_ms` (None: only when a command arrives). With `left_ms`, the
        worker will compact the log, and another worker may do so from that time on; without it, the chat's size is
        counted in its owner's account now. Raises Lost, Fenced."""

    async def handover(self, chat_id: str, worker: str, delay_ms: int) -> None:
        """Release the chat in the middle of its work, and make it due again after `delay_ms`. Raises Lost."""

    async def quarantine(self, chat_id: str, worker: str, until_ms: int) -> None:
        """Suspend a chat whose log cannot be folded. The chat loses its owner and is due again at `until_ms`, far in
        the future. Nothing is deleted. Raises Lost."""

    def inbox_signals(self, worker: str) -> AbstractAsyncContextManager[WorkerSignals]:
        """Subscribe to the inbox signals of this worker. A worker that owns chats must be subscribed, because other
        workers take over the chats of an owner that does not listen."""


class Compactions(Protocol):
    """Compacts the logs of released chats."""

    async def left_rests(self, bucket: int, limit: int, again_ms: int) -> list[str]:
        """Return up to `limit` released chats of a bucket whose logs should have been compacted. No worker gets them
        again for `again_ms`."""

    async def compact(self, chat_id: str, head: str, compacted: Compacted | None) -> bool:
        """Compact the log of a chat at rest, and count the chat's size in its owner's account. `compacted` must be the
        short form of the log at `head`; with None the log stays as it is. Returns False, and changes nothing, if the
        chat has another head or an owner. Raises Unavailable, StoreFull."""
